// Package kops holds what Theseus makes of kops' configurations against kops itself: its types, decoded strictly, its validation, and
// its names. There are two versions of it, which cannot be linked at once: go.mod has the newer, kops-1.31.mod the older.
//
// What is checked are the golden files of internal/mirror/config, which its own tests hold to be what Theseus makes.
package kops

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/util/yaml"
	kopsversion "k8s.io/kops"
	kopsapi "k8s.io/kops/pkg/apis/kops"
	"k8s.io/kops/pkg/apis/kops/v1alpha2"
	"k8s.io/kops/pkg/apis/kops/validation"
	"k8s.io/kops/pkg/kopscodecs"
	"k8s.io/kops/pkg/model/iam"
	"k8s.io/kops/pkg/truncate"
	"k8s.io/kops/upup/pkg/fi/cloudup/awsup"
	"k8s.io/kops/util/pkg/vfs"
	sigsyaml "sigs.k8s.io/yaml"
)

const goldens = "../../internal/mirror/config/testdata"

// archives are the golden conversions of kops' configurations. There are some, or the test is not worth its name.
func archives(t *testing.T) map[string]*txtar.Archive {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(goldens, "kops-*.txtar"))
	if err != nil || len(files) < 5 {
		t.Fatalf("golden files: %v, %v", files, err)
	}
	all := map[string]*txtar.Archive{}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(file)] = archive
	}
	return all
}

// refusal is the member of an archive that says why this version of kops refuses the output.
func refusal() string {
	major, rest, _ := strings.Cut(kopsversion.Version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	return "kops-" + major + "." + minor
}

func member(archive *txtar.Archive, name string) []byte {
	for _, file := range archive.Files {
		if file.Name == name {
			return file.Data
		}
	}
	return nil
}

// strict finds fields that kops does not have. somethingNewer is in a fixture to show that such fields survive.
func strict(t *testing.T, text []byte, into any) {
	t.Helper()
	var object map[string]any
	if err := sigsyaml.UnmarshalStrict(text, &object); err != nil {
		t.Fatal(err)
	}
	if spec, ok := object["spec"].(map[string]any); ok {
		delete(spec, "somethingNewer")
	}
	known, err := sigsyaml.Marshal(object)
	if err == nil {
		err = sigsyaml.UnmarshalStrict(known, into)
	}
	if err != nil {
		t.Errorf("kops does not have what Theseus wrote: %v", err)
	}
}

// decode reads objects as `kops create -f` and `kops replace -f` do.
func decode(t *testing.T, text []byte) (*kopsapi.Cluster, []*kopsapi.InstanceGroup) {
	t.Helper()
	var cluster *kopsapi.Cluster
	var groups []*kopsapi.InstanceGroup
	documents := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text)))
	for {
		buffer := make([]byte, 1<<20)
		n, err := documents.Read(buffer)
		if errors.Is(err, io.EOF) {
			return cluster, groups
		}
		if err != nil {
			t.Fatal(err)
		}
		object, _, err := kopscodecs.Decode(buffer[:n], nil)
		if err != nil {
			t.Fatalf("kops does not read what Theseus made: %v\n%s", err, buffer[:n])
		}
		switch o := object.(type) {
		case *kopsapi.Cluster:
			strict(t, buffer[:n], &v1alpha2.Cluster{})
			cluster = o
		case *kopsapi.InstanceGroup:
			strict(t, buffer[:n], &v1alpha2.InstanceGroup{})
			groups = append(groups, o)
		}
	}
}

// TestValidation lets kops judge each golden output. That its judgement means something is shown by those that a version is
// known to refuse.
func TestValidation(t *testing.T) {
	for name, archive := range archives(t) {
		t.Run(name, func(t *testing.T) {
			output := member(archive, "output.yaml")
			if output == nil {
				if member(archive, "questions") == nil {
					t.Fatal("neither an output nor questions")
				}
				return // nothing is made before all is answered
			}
			if bytes.Contains(member(archive, refusal()), []byte("unknown field")) {
				return // a network that this version does not have
			}
			cluster, groups := decode(t, output)
			if cluster == nil || len(groups) == 0 {
				t.Fatal("no cluster, or no groups")
			}
			err := validation.DeepValidate(cluster, groups, false, vfs.NewVFSContext(), nil)
			if want := strings.TrimSpace(string(member(archive, refusal()))); want != "" {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("kops says %v, want %s", err, want)
				}
				return
			}
			if err != nil {
				t.Errorf("kops refuses what Theseus made: %v", err)
			}
			for _, group := range groups {
				if group.Labels[kopsapi.LabelClusterName] != cluster.Name {
					t.Errorf("group %s is of %q", group.Name, group.Labels[kopsapi.LabelClusterName])
				}
			}
		})
	}
}

// TestNames compares the names that kops gives with those that Theseus derives, for clusters with names of all lengths.
func TestNames(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(goldens, "names.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var table []struct{ Cluster, Role, Account, Resource string }
	if err := sigsyaml.UnmarshalStrict(data, &table); err != nil || len(table) < 50 {
		t.Fatalf("%d names: %v", len(table), err)
	}
	for _, row := range table {
		role := truncate.TruncateString("masters."+row.Cluster, truncate.TruncateStringOptions{MaxLength: iam.MaxLengthIAMRoleName})
		if role != row.Role {
			t.Errorf("%s: role %s, kops says %s", row.Cluster, row.Role, role)
		}
		if account := iam.IAMNameForServiceAccountRole("writer", "shop", row.Cluster); account != row.Account {
			t.Errorf("%s: role of a service account %s, kops says %s", row.Cluster, row.Account, account)
		}
		if resource := awsup.GetResourceName32(row.Cluster, "api"); resource != row.Resource {
			t.Errorf("%s: load balancer %s, kops says %s", row.Cluster, row.Resource, resource)
		}
	}
}
