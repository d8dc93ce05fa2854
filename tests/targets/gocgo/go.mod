module example.com/gocgo

go 1.18
