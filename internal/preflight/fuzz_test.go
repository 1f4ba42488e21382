package preflight

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/document"
	"github.com/theseus-cni/theseus/internal/cluster/whatif"
	"github.com/theseus-cni/theseus/internal/network/cni"
	"github.com/theseus-cni/theseus/internal/network/drivers"
	"github.com/theseus-cni/theseus/internal/preflight/check"
)

// FuzzChecks holds that no check fails on any cluster that can be read, be it as odd as it likes. The seeds are the
// fixtures of all checks, so that a plain run puts every check on every fixture.
func FuzzChecks(f *testing.F) {
	files, err := filepath.Glob("check/*/testdata/*/*.yaml")
	if err != nil || len(files) == 0 {
		f.Fatalf("no fixtures: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte(cyclic))
	f.Fuzz(func(t *testing.T, text []byte) {
		builder := document.New("test")
		if builder.Add("in", bytes.NewReader(text), true) != nil {
			return
		}
		snapshot, _ := builder.Snapshot()
		for i := range snapshot.Sources {
			snapshot.Sources[i].Missing = ""
		}
		calico := &cni.Installation{CNI: "calico", Version: "v3.31.0", PodCIDRs: []string{"100.64.0.0/16"},
			Capabilities: cni.Capabilities{
				CIDRSource: "pool", Encapsulation: "vxlan", VNI: 4096, Port: 4789,
				Overhead: 50, Policy: cni.PolicyCalico}}
		flannel := &cni.Installation{CNI: "flannel", PodCIDRs: []string{"10.244.0.0/16"},
			Capabilities: cni.Capabilities{CIDRSource: "node"}}
		found := drivers.All().Detect(snapshot)
		change := v1alpha1.ChangeSpec{To: "calico", AgentImage: "a:v1", KubernetesTo: "v1.36.0",
			Peered: []string{"mirror=10.0.0.0/8"}}
		after, err := whatif.Apply(snapshot, change)
		if err != nil {
			change.KubernetesTo, after = "", nil // the cluster is newer
		}
		for _, source := range append([]*cni.Installation{flannel, calico}, found...) {
			pass := &check.Pass{
				Snapshot: snapshot, Source: source, Target: calico, Found: append(found, source),
				Manifest: snapshot.Other, Change: change, WhatIf: after,
			}
			for _, n := range Run(All(), pass, Options{}).NotChecked {
				if strings.Contains(n.Why, "a bug in Theseus") {
					t.Errorf("%s: %s", n.ID, n.Why)
				}
			}
		}
	})
}

// cyclic are owners that own each other, and objects whose names are in no namespace.
const cyclic = `{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: a, namespace: x, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: b, uid: b, controller: true}]}}
---
{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: b, namespace: x, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: a, uid: a, controller: true}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: x, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: a, uid: a, controller: true}]}, spec: {nodeName: n}}
---
{apiVersion: v1, kind: Pod, metadata: {name: q, ownerReferences: [{apiVersion: v1, kind: Pod, name: q, uid: q, controller: true}]}, spec: {nodeName: gone}}
---
{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: n}, spec: {podSelector: {}}}
---
{apiVersion: v1, kind: Node, metadata: {name: n}}
`
