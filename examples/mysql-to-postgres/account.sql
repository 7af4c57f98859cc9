-- The account that the pipeline uses: to read the tables, and the log.
CREATE USER dovetail IDENTIFIED BY 'PASSWORD';
GRANT SELECT ON world.* TO dovetail;
GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO dovetail;
