module example.com/gocpu

go 1.18
