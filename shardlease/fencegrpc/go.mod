module github.com/shardlease/shardlease-go/shardlease/fencegrpc

go 1.26.0

require (
	github.com/shardlease/shardlease-go v0.0.0-20261129110240-bc35c38f68e3
	go.uber.org/goleak v1.3.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20261110000943-09e21b237f2c
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	golang.org/x/net v0.61.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace github.com/shardlease/shardlease-go => ../..
