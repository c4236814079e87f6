-- The tables.
SET cte_max_recursion_depth = 100000;
CREATE TABLE customers (id INT UNSIGNED AUTO_INCREMENT PRIMARY KEY,
    name VARCHAR(60) NOT NULL, email VARCHAR(120), phone VARCHAR(30), born DATE);
CREATE TABLE orders (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY,
    customer INT UNSIGNED, total DECIMAL(10,2) NOT NULL, placed DATETIME(3), note JSON,
    state ENUM('new','paid','sent','lost') NOT NULL DEFAULT 'new');
CREATE TABLE order_items (`order` BIGINT UNSIGNED, line SMALLINT,
    sku VARCHAR(20) NOT NULL, pieces INT NOT NULL, PRIMARY KEY (`order`, line));
CREATE TABLE visits (at DATETIME(3), page VARCHAR(80), spent_s FLOAT);
INSERT INTO orders (customer, total, placed, note)
    WITH RECURSIVE t (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < 100000)
    SELECT 1 + n % 2000, n / 4, '2026-01-01' + INTERVAL n SECOND,
    JSON_OBJECT('n', n) FROM t;
INSERT INTO order_items SELECT id, 1, CONCAT('sku-', id), 1 + id % 3 FROM orders;
INSERT INTO customers (name, email, phone, born)
    SELECT CONCAT('c', id), CONCAT('c', id, '@example.org'), CONCAT('+49 30 ', id),
    '1960-01-01' + INTERVAL id DAY FROM orders LIMIT 2000;
INSERT INTO visits SELECT placed, CONCAT('/page/', id), id / 7 FROM orders LIMIT 1000;
-- The load, one transaction a line; {n} is a random order.
BEGIN; INSERT INTO orders (customer, total, placed) VALUES (1, {n} / 100, NOW(3)); INSERT INTO order_items VALUES (LAST_INSERT_ID(), 1, 'a', {n}); COMMIT;
UPDATE orders SET state = 'paid' WHERE id = {n};
UPDATE customers SET phone = '+49 30 {n}' WHERE id = 1 + {n} % 2000;
INSERT INTO visits VALUES (NOW(3), '/page/{n}', {n} / 7);
BEGIN; DELETE FROM order_items WHERE `order` = {n}; DELETE FROM orders WHERE id = {n}; COMMIT;
-- While the mirror follows the load.
ALTER TABLE orders ADD COLUMN coupon VARCHAR(20);
ALTER TABLE customers RENAME COLUMN born TO birthday;
ALTER TABLE order_items MODIFY pieces BIGINT NOT NULL;
TRUNCATE TABLE visits;
CREATE TABLE returns (id INT PRIMARY KEY, why TEXT);
INSERT INTO returns VALUES (1, 'too small'), (2, NULL);
