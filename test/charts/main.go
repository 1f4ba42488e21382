// Command charts renders the Helm charts of networks, as `helm template` does, from the source that the Go module proxy
// has of a release, into the fixtures that drivers are tested on:
//
//	cd test/charts && go run .
//
// It downloads each network's module, and asks no cluster and no chart repository.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
	"sigs.k8s.io/yaml"
)

// kubernetes is the version that charts are rendered for.
const kubernetes = "v1.36.3"

// fixtures is where they go.
const fixtures = "../../internal/network/cnitest/testdata/charts"

// rendering is a chart of a release, and how it is rendered.
type rendering struct {
	module, version, folder string
	release, namespace      string // what helm is told
	values                  string // YAML, in one line
}

func all() []rendering {
	// Certificates of Hubble are left out, since Helm makes other ones each time.
	const values = "{ipam: {operator: {clusterPoolIPv4PodCIDRList: [10.0.0.0/16]}}, hubble: {tls: {enabled: false}}}"
	var found []rendering
	for _, version := range []string{"v1.12.19", "v1.16.5", "v1.19.0"} {
		found = append(found, rendering{"github.com/cilium/cilium", version, "install/kubernetes/cilium",
			"cilium", "kube-system", values})
	}
	// Two releases between which Cilium is upgraded, without its proxy, and the pre-flight check of the newer one.
	const alone = "{ipam: {operator: {clusterPoolIPv4PodCIDRList: [10.0.0.0/16]}}, hubble: {enabled: false}, " +
		"envoy: {enabled: false}, l7Proxy: false, upgradeCompatibility: \"1.19\"}"
	for _, of := range []struct{ version, release, values string }{{"v1.19.6", "cilium", alone},
		{"v1.20.2", "cilium", alone},
		{"v1.20.2", "cilium-preflight", "{preflight: {enabled: true}, agent: false, operator: {enabled: false}, " +
			"envoy: {enabled: false}}"}} {
		found = append(found, rendering{"github.com/cilium/cilium", of.version, "install/kubernetes/cilium",
			of.release, "kube-system", of.values})
	}
	return append(found, rendering{"github.com/flannel-io/flannel", "v0.28.4", "chart/kube-flannel", "flannel",
		"kube-flannel", "{podCidr: 10.244.0.0/16}"})
}

func main() {
	for _, r := range all() {
		if err := r.write(); err != nil {
			fmt.Fprintf(os.Stderr, "error: %s %s: %v\n", r.release, r.version, err)
			os.Exit(1)
		}
	}
}

// write makes the fixture again.
func (r rendering) write() error {
	module, err := r.download()
	if err != nil {
		return err
	}
	text, err := r.render(filepath.Join(module.Dir, filepath.FromSlash(r.folder)))
	if err != nil {
		return err
	}
	head := fmt.Sprintf("# What helm template %s %s -n %s --kube-version %s --values VALUES prints, as it is, of %s "+
		"in\n# module %s %s (%s), with the values\n#   %s\n# Made by test/charts.\n",
		r.release, filepath.Base(r.folder), r.namespace, kubernetes, r.folder, r.module,
		r.version, module.Sum, r.values)
	return os.WriteFile(filepath.Join(fixtures, r.release+"-"+r.version+".yaml"), []byte(head+text), 0o644)
}

// downloaded is what `go mod download -json` says of a module.
type downloaded struct{ Dir, Sum, Error string }

func (r rendering) download() (*downloaded, error) {
	command := exec.Command("go", "mod", "download", "-json", r.module+"@"+r.version)
	command.Dir = os.TempDir() // of no module, whose go.mod would have it too
	command.Stderr = os.Stderr
	output, err := command.Output()
	var module downloaded
	if broken := json.Unmarshal(output, &module); broken == nil && module.Error != "" {
		return nil, fmt.Errorf("%s", module.Error)
	}
	return &module, err
}

// render is what helm makes of the chart in a folder, with the objects in the order in which helm would make them.
func (r rendering) render(folder string) (string, error) {
	chart, err := loader.Load(folder)
	if err != nil {
		return "", err
	}
	values := map[string]any{}
	if err := yaml.Unmarshal([]byte(r.values), &values); err != nil {
		return "", err
	}
	if err := chartutil.ProcessDependenciesWithMerge(chart, values); err != nil {
		return "", err
	}
	cluster := chartutil.DefaultCapabilities.Copy()
	version, err := chartutil.ParseKubeVersion(kubernetes)
	if err != nil {
		return "", err
	}
	cluster.KubeVersion = *version
	options := chartutil.ReleaseOptions{Name: r.release, Namespace: r.namespace, Revision: 1, IsInstall: true}
	told, err := chartutil.ToRenderValues(chart, values, options, cluster)
	if err != nil {
		return "", err
	}
	files, err := engine.Render(chart, told)
	if err != nil {
		return "", err
	}
	for name := range files {
		if strings.HasSuffix(name, "NOTES.txt") {
			delete(files, name)
		}
	}
	_, objects, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, object := range objects {
		fmt.Fprintf(&text, "---\n# Source: %s\n%s\n", object.Name, strings.TrimSpace(object.Content))
	}
	return text.String(), nil
}
