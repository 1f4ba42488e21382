package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/step"
)

// TestAddWritten: the metadata of what a plan writes is read, with who wrote it; what does not exist is no error, and
// what may not be read is said.
func TestAddWritten(t *testing.T) {
	server, client := serve(t, nil, nil)
	server.answers, server.codes = aCluster()
	server.answers["/apis/crd.projectcalico.org/v1/ippools/pool"] =
		`{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{"name":"pool","uid":"u",
		"labels":{"a":"b"},"managedFields":[{"manager":"m","operation":"Update","time":"2026-01-01T00:00:00Z","fieldsV1":{"f:spec":{}}}]}}`
	server.codes["/apis/crd.projectcalico.org/v1/ippools/gone"] = 404
	server.codes["/apis/crd.projectcalico.org/v1/ipamblocks/block"] = 403
	patch := func(kind, name string) step.Action {
		return step.Action{Do: step.Patch{
			Ref: step.Ref{APIVersion: "crd.projectcalico.org/v1", Kind: kind, Name: name}}}
	}
	var s cluster.Snapshot
	if err := AddWritten(t.Context(), client, &s, []step.Step{
		{Actions: []step.Action{patch("IPPool", "pool"), patch("IPPool", "gone"), patch("IPAMBlock", "block"),
			patch("Unknown", "x")}}}); err != nil {
		t.Fatal(err)
	}
	if len(s.Written) != 1 || s.Written[0].Kind != "IPPool" || s.Written[0].Labels["a"] != "b" ||
		len(s.Written[0].ManagedFields) != 1 ||
		s.Written[0].ManagedFields[0].Manager != "m" || s.Written[0].ManagedFields[0].FieldsV1 != nil {
		t.Errorf("%+v", s.Written)
	}
	want := []cluster.Source{{Resource: "metadata of IPPool.crd.projectcalico.org", From: FromLive},
		{Resource: "metadata of IPAMBlock.crd.projectcalico.org", From: FromLive, Missing: "forbidden"},
		{Resource: "metadata of Unknown.crd.projectcalico.org", From: FromLive}}
	if diff := cmp.Diff(want, s.Sources); diff != "" {
		t.Error(diff)
	}
}
