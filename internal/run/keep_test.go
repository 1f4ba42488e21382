package run

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
)

// TestEvidenceThatCannotBeKept is said once, and once more when it has come back.
func TestEvidenceThatCannotBeKept(t *testing.T) {
	said := &listener{}
	r := &Run{View: said, Dir: filepath.Join(t.TempDir(), "absent")}
	save := func() { r.save(kube.Collected{}) }
	warned := func() int { return strings.Count(said.String(), "warning: the evidence for the report cannot be kept") }
	save()
	save()
	if warned() != 1 {
		t.Errorf("said %q", said.String())
	}
	if err := os.Mkdir(r.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	save()
	if _, err := os.Stat(filepath.Join(r.Dir, EvidenceFile)); err != nil || warned() != 1 {
		t.Errorf("%v, said %q", err, said.String())
	}
	if err := os.RemoveAll(r.Dir); err != nil {
		t.Fatal(err)
	}
	if save(); warned() != 2 {
		t.Errorf("said %q", said.String())
	}
}

// TestEncode: evidence is written as json.Marshal writes it.
func TestEncode(t *testing.T) {
	one := manyReports(2)
	one.Foreign = map[string]string{"a": "<b>"}
	for _, document := range []kube.Collected{{}, {Paths: []v1alpha1.Path{}, Results: []v1alpha1.PathResult{}},
		{Paths: one.Paths[:1]}, one} {
		want, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := encode(&got, document); err != nil || got.String() != string(want) {
			t.Errorf("%v: %.200s, not %.200s", err, got.String(), want)
		}
		if err := encode(&bounded{to: io.Discard, left: len(want)}, document); err != nil {
			t.Error(err)
		}
		if err := encode(&bounded{to: io.Discard, left: len(want) - 1}, document); err == nil {
			t.Error("more was written than is allowed")
		}
	}
}

// TestUnreadEvidence: a run does not replace evidence that it cannot read, and removes what a killed process has left.
func TestUnreadEvidence(t *testing.T) {
	dir, said := t.TempDir(), &listener{}
	r := &Run{View: said, Dir: dir}
	for _, text := range []string{"first", "second"} {
		for _, name := range []string{EvidenceFile, "." + EvidenceFile + ".123"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r.evidence()
		if !r.save(manyReports(1)) {
			t.Fatal(said)
		}
	}
	first, second := filepath.Join(dir, EvidenceFile+".unread"), filepath.Join(dir, EvidenceFile+".unread.2")
	for name, want := range map[string]string{first: "first", second: "second"} {
		if text, err := os.ReadFile(name); err != nil || string(text) != want ||
			!strings.Contains(said.String(), "; it is now "+name+"\n") {
			t.Errorf("%s has %q (%v); said: %s", name, text, err, said)
		}
	}
	if files := unreadIn(dir); !reflect.DeepEqual(files, []string{first, second}) {
		t.Errorf("not read are %v", files)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 3 {
		t.Errorf("left: %v (%v)", left, err)
	}
	if now := r.evidence().Document(); len(now.Paths) != manyPaths {
		t.Errorf("%d paths are read again", len(now.Paths))
	}
}

// TestEvidenceTooLarge: evidence that could not be read again does not replace what can be read.
func TestEvidenceTooLarge(t *testing.T) {
	dir := t.TempDir()
	one := manyReports(1)
	if err := Keep(dir, one); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, EvidenceFile))
	if err != nil {
		t.Fatal(err)
	}
	err = write(filepath.Join(dir, EvidenceFile), manyReports(2), int(info.Size()))
	if err == nil || !strings.Contains(err.Error(), "could not be read again") {
		t.Errorf("%v", err)
	}
	if now, err := kept(dir); err != nil || SeenIn(now) != SeenIn(one) {
		t.Errorf("kept is %+v (%v)", SeenIn(now), err)
	}
}
