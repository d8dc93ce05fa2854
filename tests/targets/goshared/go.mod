module example.com/goshared

go 1.18
