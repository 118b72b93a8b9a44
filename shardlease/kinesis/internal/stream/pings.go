package stream

import (
	"net/http"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/kinesis"
)

const (
	// A connection that has received nothing for pingAfter sends a ping, and is closed if no answer comes within
	// pingPatience.
	pingAfter    = 10 * time.Second
	pingPatience = 10 * time.Second
)

// Pings lets a client close a connection that is lost unnoticed. Otherwise all requests would use it, each until its
// time is over, until the system gives the connection up, which takes about 15 minutes: Kinesis speaks HTTP/2, with
// one connection for all. The client has connections of its own then. An HTTP client that is not the SDK's, or
// has settings for HTTP/2, stays as it is.
func Pings(o *kinesis.Options) {
	client, ok := o.HTTPClient.(*awshttp.BuildableClient)
	if !ok || client.GetTransport().HTTP2 != nil {
		return
	}
	o.HTTPClient = client.WithTransportOptions(func(t *http.Transport) {
		t.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingPatience}
	})
}
