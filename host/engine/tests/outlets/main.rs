//! One contract for every outlet: what each promises, tried on all that promise it.

mod definitions;
mod durability;
mod kinds;
mod lost_replies;
mod mysql;
mod refusals;
mod rows;
mod subject;
mod text;
mod values;
mod world;
