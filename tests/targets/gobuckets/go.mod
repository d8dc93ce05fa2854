module example.com/gobuckets

go 1.18
