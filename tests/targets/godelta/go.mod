module example.com/godelta

go 1.25.0

require github.com/grafana/pyroscope-go/godeltaprof v0.1.12

require github.com/klauspost/compress v1.18.6 // indirect
