package kcl_test

import (
	"errors"
	"testing"

	"github.com/shardlease/shardlease-go/checkpoint"
	"github.com/shardlease/shardlease-go/dynamostore/kcl"
	"github.com/shardlease/shardlease-go/memstore"
	"github.com/shardlease/shardlease-go/shardlease"
)

// TestTableWithoutClient: every call with a zero Table returns an error that names the
// missing field. Such a call used to panic.
func TestTableWithoutClient(t *testing.T) {
	into := shardlease.Supervisor{Store: new(memstore.Store), Group: "orders", By: "operator"}
	_, errLeases := kcl.Table{}.Leases(t.Context())
	_, errImport := kcl.Import(t.Context(), kcl.Table{}, into, kcl.ImportOptions{})
	_, errExport := kcl.Export(t.Context(), into, kcl.Table{}, kcl.ExportOptions{})
	for name, err := range map[string]error{"leases": errLeases, "import": errImport, "export": errExport} {
		if invalid, ok := errors.AsType[*checkpoint.InvalidError](err); !ok || invalid.Field != "Client" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
