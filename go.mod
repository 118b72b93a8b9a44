module github.com/shardlease/shardlease-go

go 1.26
