package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/shardlease/shardlease-go/dynamostore"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease/lease"
)

// An opened store, and where it is.
type opened struct {
	lease.Store
	where string
	close func() // nil: there is nothing to close
}

func (o opened) shut() {
	if o.close != nil {
		o.close()
	}
}

func (o options) open(ctx context.Context) (opened, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	switch {
	case o.store == "memory":
		return opened{Store: new(memstore.Store), where: "in memory"}, nil
	case o.endpoint != "":
		return o.local(ctx)
	}
	c, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return opened{}, err
	}
	store, err := o.table(ctx, dynamodb.NewFromConfig(c))
	return opened{Store: store, where: fmt.Sprintf("in DynamoDB, in the table %q,", o.name)}, err
}

// local is DynamoDB Local. It takes any credentials and any region, but wants some.
func (o options) local(ctx context.Context) (opened, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	store, err := o.table(ctx, dynamodb.New(dynamodb.Options{
		BaseEndpoint: &o.endpoint, Region: "us-east-1",
		Credentials: credentials.NewStaticCredentialsProvider("quickstart", "quickstart", ""),
		HTTPClient:  &http.Client{Transport: transport},
	}))
	return opened{Store: store, where: fmt.Sprintf("in the table %q at %s", o.name, o.endpoint), close: transport.CloseIdleConnections}, err
}

// table makes the table if need be, and opens it.
func (o options) table(ctx context.Context, client *dynamodb.Client) (*dynamostore.Store, error) {
	// A table to play with: in production leave both protections on.
	made := dynamostore.TableOptions{NoDeletionProtection: true, NoPointInTimeRecovery: true}
	if err := dynamostore.CreateTable(ctx, client, o.name, made); err != nil {
		return nil, err
	}
	return dynamostore.Open(ctx, client, o.name, dynamostore.Options{Timeout: o.ttl() / 2})
}
