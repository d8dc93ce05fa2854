module example.com/gobusy

go 1.18
