// Package kcl tests the migration of leases between KCL tables and the library.
package kcl

import (
	"testing"

	"github.com/shardlease/shardlease-go/integration/internal/local"
)

func TestMain(m *testing.M) { local.Main(m) }
