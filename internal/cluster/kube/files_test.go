package kube

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster"
	"github.com/theseus-cni/theseus/internal/cluster/document"
)

func TestSnapshotRoundTrip(t *testing.T) {
	want := &cluster.Snapshot{
		APIVersion: v1alpha1.APIVersion, Kind: cluster.Kind, Theseus: "v1", UID: "u", Kubernetes: "v1.36.3",
		TakenAt: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)),
		Nodes:   []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: map[string]string{"q": `"},{[\`}}}},
		Pods: []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "p"}},
			{ObjectMeta: metav1.ObjectMeta{Name: "q"}}},
		Namespaces: []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "u"}}},
		Other: []unstructured.Unstructured{{Object: map[string]any{
			"apiVersion": "x.io/v1", "kind": "Odd", "metadata": map[string]any{"name": "o"},
			"spec": map[string]any{"n": int64(3)},
		}}},
		Facts:  []cluster.NodeFacts{{Node: "a", Links: []cluster.Link{{Name: "eth0", MTU: 1500}}}},
		Rights: []cluster.Right{{Verb: "get", Resource: "pods", Allowed: true}},
		Sources: []cluster.Source{
			{Resource: "nodes", From: FromLive, ResourceVersion: "7"}, {Resource: "namespaces", From: FromLive},
			{Resource: "pods", From: FromLive}, {Resource: "services", Missing: "forbidden"},
			{Resource: "configmaps", From: FromLive}, {Resource: "daemonsets", From: FromLive},
			{Resource: "deployments", From: FromLive}, {Resource: "replicasets", From: FromLive},
			{Resource: "statefulsets", From: FromLive}, {Resource: "jobs", From: FromLive},
			{Resource: "poddisruptionbudgets", From: FromLive}, {Resource: "networkpolicies", From: FromLive},
		},
	}
	var text bytes.Buffer
	if err := WriteSnapshot(&text, want); err != nil {
		t.Fatal(err)
	}
	got, notes, err := ReadFiles("v2", &text, Stdin)
	if err != nil || len(notes) > 0 {
		t.Fatal(err, notes)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestReadFolder(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "b/nodes.yml", "apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\n")
	write(t, dir, "pods.json", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"shop"}}`)
	write(t, dir, "values.yaml", "replicas: 3\n")
	write(t, dir, "notes.txt", "{{{")
	s, notes, err := ReadFiles("v", strings.NewReader(""), dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Nodes) != 1 || len(s.Pods) != 1 || len(notes) != 1 ||
		!strings.Contains(notes[0], "values.yaml:1: skipped") {
		t.Errorf("got %d nodes, %d pods, %q", len(s.Nodes), len(s.Pods), notes)
	}
}

// TestReadLinks reads a folder as a ConfigMap is mounted (each file a link into a folder behind another link), and one
// of links to elsewhere, once each; a link to nothing is an error.
func TestReadLinks(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "elsewhere/nodes.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\n")
	write(t, dir, "mounted/..2026/pods.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: shop}\n")
	for link, to := range map[string]string{"mounted/..data": "..2026", "mounted/pods.yaml": "..data/pods.yaml",
		"mounted/nodes.yaml": "../elsewhere/nodes.yaml", "linked": "mounted"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(filepath.Join(dir, "mounted"))
	for _, folder := range []string{filepath.Join(dir, "mounted"), filepath.Join(dir, "linked"), "."} {
		s, notes, err := ReadFiles("v", nil, folder)
		if err != nil || len(s.Nodes) != 1 || len(s.Pods) != 1 || len(notes) > 0 {
			t.Errorf("%s: %v, %q", folder, err, notes)
		}
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "mounted/gone.yaml")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReadFiles("v", nil, filepath.Join(dir, "mounted")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a link to nothing: %v", err)
	}
}

func TestReadNothing(t *testing.T) {
	var placed *document.Error
	if _, _, err := ReadFiles("v", nil, t.TempDir()); !errors.As(err, &placed) || placed.Hint() == "" {
		t.Errorf("an empty folder: %v", err)
	}
	if _, _, err := ReadFiles("v", nil, filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	for _, text := range []string{"", "# nothing\n", `{"apiVersion":"v1","items":[],"kind":"List"}`} {
		if _, _, err := ReadFiles("v", strings.NewReader(text), Stdin); !errors.As(err, &placed) ||
			placed.Hint() == "" {
			t.Errorf("%q: %v", text, err)
		}
	}
	if s, _, err := ReadFiles("v", strings.NewReader(`{"apiVersion":"v1","items":[],"kind":"PodList"}`),
		Stdin); err != nil || len(s.Pods) > 0 {
		t.Errorf("a list that says that there is nothing: %v", err)
	}
	if _, _, err := ReadFiles("v", nil); err == nil {
		t.Error("no path is no error")
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
