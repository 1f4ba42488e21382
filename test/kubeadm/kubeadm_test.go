// Package kubeadm lets kubeadm itself judge what Theseus makes of its configurations, as `kubeadm config validate` does: types, decoded
// strictly, and validation.
//
// What is judged are the golden files of internal/mirror/config, which its own tests hold to be what Theseus makes.
package kubeadm

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/config"
)

const goldens = "../../internal/mirror/config/testdata"

// outputs are the configurations that Theseus makes, by golden file.
func outputs(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(goldens, "kubeadm-*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if i := slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == "output.yaml" }); i >= 0 {
			found[filepath.Base(file)] = string(archive.Files[i].Data)
		}
	}
	if len(found) < 2 {
		t.Fatalf("%d outputs", len(found))
	}
	return found
}

func validate(text string) error {
	return config.ValidateConfig([]byte(text), true, false) // v1beta3 is deprecated, and read
}

func TestValidation(t *testing.T) {
	for name, text := range outputs(t) {
		t.Run(name, func(t *testing.T) {
			if err := validate(text); err != nil {
				t.Errorf("kubeadm refuses what Theseus made: %v\n%s", err, text)
			}
		})
	}
}

// TestJudgement shows that the judgement means something: kubeadm refuses each output with one thing wrong.
func TestJudgement(t *testing.T) {
	for name, text := range outputs(t) {
		for says, edit := range map[string][2]string{
			"podSubnet":                   {"podSubnet: 10.", "podSubnet: 300."},
			"port must be a valid number": {"controlPlaneEndpoint: api.green.example.com:6443", "controlPlaneEndpoint: api.green.example.com:port"},
			`field "clusterNames"`:        {"clusterName: green", "clusterNames: green"},
			"apiServer.certSANs":          {"- api.green.example.com", "- api_green example.com"},
			"apiserver-advertise-address": {"advertiseAddress: 10.0.1.", "advertiseAddress: 10.0.0.0.1."},
		} {
			t.Run(name+"/"+says, func(t *testing.T) {
				broken := strings.Replace(text, edit[0], edit[1], 1)
				if broken == text {
					t.Fatalf("%q is not in it", edit[0])
				}
				if err := validate(broken); err == nil || !strings.Contains(err.Error(), says) {
					t.Errorf("%v, want %q", err, says)
				}
			})
		}
	}
}
