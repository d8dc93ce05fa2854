module profiles

go 1.19
