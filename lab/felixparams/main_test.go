package main

import (
	"bytes"
	"os"
	"testing"
)

// TestFresh holds the product's table to that of the Calico that the lab builds.
func TestFresh(t *testing.T) {
	t.Chdir("..")
	want, err := table("v3.31.0")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../internal/felix/params.json")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("internal/felix/params.json is stale: go generate ./internal/felix")
	}
}
