CREATE TABLE book (id INT PRIMARY KEY, title TEXT, price DECIMAL(6,2), stock INT);
INSERT INTO book VALUES (1, 'Dune', 9.95, 12), (2, 'Der Prozess', 8.25, 5), (3, '紅樓夢', 24.50, 3);
CREATE TABLE sale (id SERIAL PRIMARY KEY, book INT, pieces INT);
BEGIN; INSERT INTO sale (book, pieces) VALUES (1, 2), (3, 2); UPDATE book SET stock = stock - 2 WHERE id IN (1, 3); COMMIT;
ALTER TABLE book ADD COLUMN pages INT AFTER title;
UPDATE book SET pages = 612, price = 10.95 WHERE title = 'Dune';
DELETE FROM book WHERE id = 2;
INSERT INTO book VALUES (4, 'Emma', 474, 7.25, 9);
UPDATE book SET stock = stock + 20 WHERE stock < 10;
