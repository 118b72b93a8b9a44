// Package kcl moves leases between tables as the KCL leaves them and the library.
package kcl

import (
	"testing"

	"github.com/shardlease/shardlease-go/integration/internal/local"
)

func TestMain(m *testing.M) { local.Main(m) }
