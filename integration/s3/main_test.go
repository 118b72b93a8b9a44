// Package s3 checks fences3 on gofakes3, an S3-compatible server in the process of the test, which
// honours If-Match and If-None-Match.
package s3

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/shardlease/shardlease-go/shardlease/fences3"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const bucket = "bucket"

// open returns a register in a new server, whose requests go through a transport; nil adds none.
func open(t testing.TB, through func(http.RoundTripper) http.RoundTripper) *fences3.Register {
	t.Helper()
	server := httptest.NewServer(gofakes3.New(s3mem.New()).Server())
	t.Cleanup(server.Close)
	plain := &http.Transport{}
	t.Cleanup(plain.CloseIdleConnections)
	var transport http.RoundTripper = plain
	if through != nil {
		transport = through(plain)
	}
	return openAt(t, server.URL, transport)
}

// openAt returns a register in the server at an address.
func openAt(t testing.TB, url string, transport http.RoundTripper) *fences3.Register {
	t.Helper()
	client := s3.New(s3.Options{
		Region: "eu-central-1", BaseEndpoint: &url, UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider("local", "local", ""),
		HTTPClient:  &http.Client{Transport: transport},
	})
	if _, err := client.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String(bucket)}); err != nil {
		t.Fatal(err)
	}
	return &fences3.Register{Client: client, Bucket: bucket, Prefix: "fences/"}
}
