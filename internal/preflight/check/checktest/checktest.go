// Package checktest tests a check on fixtures. A fixture is the YAML of a cluster with one document of the
// kind Case, which contains the rest of the pass and the expected findings.
package checktest

import (
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/document"
	"github.com/theseus-cni/theseus/internal/cluster/finding"
	"github.com/theseus-cni/theseus/internal/cluster/whatif"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/preflight/check"
	"github.com/theseus-cni/theseus/internal/step"
)

// Case is the part of a pass that is not in the cluster, and what is expected.
type Case struct {
	Change   v1alpha1.ChangeSpec         `json:"change"`
	Source   *cni.Installation           `json:"source"`
	Target   *cni.Installation           `json:"target"`
	Found    []*cni.Installation         `json:"found"`
	Manifest []unstructured.Unstructured `json:"manifest"`
	Facts    []cluster.NodeFacts         `json:"facts"`
	Rights   []cluster.Right             `json:"rights"`
	Served   *check.Served               `json:"served"`
	// Steps are those of the plan.
	Steps []step.Step `json:"steps"`
	// Written is the metadata of objects as read for the plan.
	Written []metav1.PartialObjectMetadata `json:"written"`
	// Kubernetes is the cluster's version.
	Kubernetes string `json:"kubernetes"`
	// TakenAt is when the snapshot was taken.
	TakenAt metav1.Time `json:"takenAt"`
	// Missing are resources that were not read, with the reason.
	Missing map[string]string `json:"missing"`
	// Want are the findings in order, as "severity Kind/namespace/name: message", each of which may leave
	// out the end of the message; or "not checked: why".
	Want []string `json:"want"`
}

// Run tests a check on testdata/NAME/*.yaml, where NAME is the part of its id after the slash. A fixture
// named valid-* has no finding, and one named invalid-* has some.
func Run(t *testing.T, c check.Check) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", path.Base(c.ID), "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	valid, invalid := 0, 0
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			pass, want := Load(t, file)
			compare(t, c, pass, want)
			switch {
			case strings.HasPrefix(name, "valid-") && len(want) == 0:
				valid++
			case strings.HasPrefix(name, "invalid-") && len(want) > 0:
				invalid++
			case !strings.HasPrefix(name, "unknown-"):
				t.Errorf("%s: a fixture is valid-* without findings, invalid-* with some, or unknown-*", file)
			}
		})
	}
	if valid == 0 || invalid == 0 {
		t.Errorf("%s has %d valid and %d invalid fixtures: it needs some of both", c.ID, valid, invalid)
	}
}

func compare(t *testing.T, c check.Check, pass *check.Pass, want []string) {
	t.Helper()
	var got []string
	if why := c.Missing(pass); why != "" {
		got = []string{"not checked: " + why}
	} else {
		for _, f := range c.Run(pass) {
			if f.ID != c.ID {
				t.Errorf("the finding has the id %q", f.ID)
			}
			got = append(got, Line(f))
		}
		if why := c.Partly(pass); why != "" {
			got = append(got, "not checked in part: "+why)
		}
	}
	for i := range min(len(got), len(want)) {
		if strings.HasPrefix(got[i], want[i]) {
			got[i] = want[i]
		}
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("findings (-want +got):\n%s", diff)
	}
}

// Line is a finding as Case.Want has it.
func Line(f finding.Finding) string {
	return string(f.Severity) + " " + f.Subject.String() + ": " + f.Message
}

// Load reads a fixture. Kinds that the fixture has none of count as read and empty, unless it says otherwise.
func Load(t *testing.T, file string) (*check.Pass, []string) {
	t.Helper()
	input, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer input.Close()
	builder := document.New("test")
	if err := builder.Add(file, input, false); err != nil {
		t.Fatal(err)
	}
	snapshot, _ := builder.Snapshot()
	for _, asked := range []string{"crd.projectcalico.org", "persistentvolumes",
		"validatingwebhookconfigurations", "mutatingwebhookconfigurations", "apiservices", "customresourcedefinitions",
		"argoproj.io", "kustomize.toolkit.fluxcd.io", "helm.toolkit.fluxcd.io"} {
		if ok, _ := snapshot.Has(asked); !ok {
			snapshot.Sources = append(snapshot.Sources, cluster.Source{Resource: asked, From: "fixture"})
		}
	}
	cases := snapshot.OtherOf(v1alpha1.Group, "Case")
	if len(cases) != 1 {
		t.Fatalf("%s: %d documents of the kind Case", file, len(cases))
	}
	raw, err := json.Marshal(cases[0].Object)
	if err != nil {
		t.Fatal(err)
	}
	var c Case
	if err := json.Unmarshal(raw, &c); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	snapshot.Written = c.Written
	snapshot.Facts, snapshot.Rights, snapshot.TakenAt = c.Facts, c.Rights, c.TakenAt
	if c.Kubernetes != "" {
		snapshot.Kubernetes = c.Kubernetes
	}
	for _, w := range step.Writes(c.Steps) {
		snapshot.Sources = append(snapshot.Sources,
			cluster.Source{Resource: cluster.MetadataOf(w.GroupKind()), From: "fixture"})
	}
	for i := range snapshot.Sources {
		snapshot.Sources[i].Missing = c.Missing[snapshot.Sources[i].Resource]
	}
	after, err := whatif.Apply(snapshot, c.Change)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return &check.Pass{
		Snapshot: snapshot, Change: c.Change, Source: c.Source, Target: c.Target, Found: c.Found, Manifest: c.Manifest,
		WhatIf: after, Served: c.Served, Steps: c.Steps,
	}, c.Want
}
