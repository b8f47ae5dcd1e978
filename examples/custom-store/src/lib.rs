//! A store without sqlx
