-- What the types of the corpus need, beside the extensions that a block names.
CREATE TYPE mood AS ENUM ('sad', 'ok', 'very happy', 'l''été', '"quoted"', '');
CREATE SCHEMA "Odd schema";
CREATE TYPE "Odd schema"."Sp.aced Type" AS ENUM ('a', 'B c');
CREATE DOMAIN positive AS int4 CHECK (VALUE > 0);
CREATE DOMAIN code AS varchar(8);
CREATE DOMAIN code_of_code AS code;
CREATE DOMAIN price AS numeric(12, 2);
CREATE DOMAIN tags AS text[];
CREATE DOMAIN feeling AS mood;
CREATE TYPE pair AS (number int4, label text);
CREATE TYPE nested AS (inner_pair pair, at timestamptz, flags bool[]);
CREATE TYPE textrange AS RANGE (subtype = text, collation = "C");
