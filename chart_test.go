package theseus

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
	"github.com/theseus-cni/theseus/internal/cluster/manifest"
)

var update = flag.Bool("update", false, "rewrite the templates of the chart that are made from Go")

const chart = "charts/theseus"

// TestChart: the templates with Theseus' own objects are made from the Go code that Theseus itself uses. -update
// rewrites them.
func TestChart(t *testing.T) {
	for name, want := range templates(t) {
		path := filepath.Join(chart, "templates", name)
		if *update {
			if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s (-want +got; go test . -run '^TestChart$' -update rewrites it):\n%s", path, diff)
		}
	}
}

// TestPorts: no two pods of Theseus on the network of a node need the same port of it, or the scheduler keeps one of
// them off that node.
func TestPorts(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chart, "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values struct{ Metrics, Web struct{ Port int } }
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	ports := map[int]string{}
	for name, port := range map[string]int{"metrics": values.Metrics.Port, "web": values.Web.Port,
		"alive": manifest.PortAlive, "controller": manifest.PortController, "introduce": manifest.PortIntroduce,
		"udp":        manifest.PortUDP + manifest.HostOffset,
		"tcp":        manifest.PortTCP + manifest.HostOffset,
		"sink":       manifest.PortSink + manifest.HostOffset,
		"http":       manifest.PortHTTP + manifest.HostOffset,
		"second udp": manifest.PortUDP + manifest.HostOffset + manifest.SecondOffset,
		"second tcp": manifest.PortTCP + manifest.HostOffset + manifest.SecondOffset,
		"denied":     manifest.PortDenied + manifest.HostOffset} {
		if other := ports[port]; port == 0 || other != "" {
			t.Errorf("port %d is that of %s and of %q", port, name, other)
		}
		ports[port] = name
	}
}

// templates are the contents of the templates that are made from Go, by the name of the file.
func templates(t *testing.T) map[string]string {
	t.Helper()
	var crds []unstructured.Unstructured
	for _, crd := range manifest.CRDs() {
		if slices.Contains(manifest.Kept(), crd.GetName()) { // a run creates the others, and deletes them at its end
			crd.SetAnnotations(map[string]string{"helm.sh/resource-policy": "keep"})
			crds = append(crds, crd)
		}
	}
	account := kube.Subject{Kind: "ServiceAccount", Namespace: v1alpha1.Namespace, Name: manifest.ControllerName}
	controller := roles(t, kube.Controller, account)
	var users []unstructured.Unstructured
	for _, duty := range []kube.Duty{kube.Look, kube.Plan, kube.Approve} {
		users = append(users, roles(t, duty)...)
	}
	change := manifest.ChangeCRD()
	change.SetAnnotations(map[string]string{"helm.sh/resource-policy": "keep"})
	planning := append([]unstructured.Unstructured{change}, roles(t, kube.Changes, account)...)
	return map[string]string{
		"planning.yaml": "{{- if .Values.planning.enabled }}\n" + documents(t, planning) + "{{- end }}\n",
		"crds.yaml":     documents(t, crds),
		"approval.yaml": "{{- if semverCompare \">=1.30-0\" .Capabilities.KubeVersion.Version }}\n" +
			documents(t, append(manifest.ApprovalPolicy(), manifest.AskedPolicy()...)) + "{{- end }}\n",
		"webrights.yaml": "{{- if .Values.web.enabled }}\n" + documents(t, roles(t, kube.Page,
			kube.Subject{Kind: "ServiceAccount", Namespace: v1alpha1.Namespace, Name: "theseus-web"})) + "{{- end }}\n",
		"rights.yaml": documents(t, controller),
		"roles.yaml":  "{{- if .Values.roles.create }}\n" + documents(t, users) + "{{- end }}\n",
	}
}

// roles are the objects of a duty, without the namespace, which Helm creates.
func roles(t *testing.T, duty kube.Duty, subjects ...kube.Subject) []unstructured.Unstructured {
	t.Helper()
	all, err := kube.Roles(duty, "", nil, subjects)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(o unstructured.Unstructured) bool { return o.GetKind() == "Namespace" })
}

func documents(t *testing.T, objects []unstructured.Unstructured) string {
	t.Helper()
	text := "# Made from Go: go test . -run '^TestChart$' -update\n"
	for _, object := range objects {
		one, err := yaml.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(one), "{{") {
			t.Fatalf("%s %s has what Helm would read as a template", object.GetKind(), object.GetName())
		}
		text += "---\n" + string(one)
	}
	return text
}

// TestChartFits: what the chart's own templates name is what Theseus names so.
func TestChartFits(t *testing.T) {
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(chart, "templates", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for name, words := range map[string][]string{
		"deployment.yaml": {"name: " + manifest.ControllerName, "serviceAccountName: " + manifest.ControllerName,
			v1alpha1.LabelManaged + `: "true"`},
		"serviceaccount.yaml": {"name: " + manifest.ControllerName,
			`ne .Release.Namespace "` + v1alpha1.Namespace + `"`},
		"web.yaml": {v1alpha1.LabelManaged + `: "true"`},
		"uninstall.yaml": {"uninstall-check", "serviceAccountName: " + manifest.ControllerName,
			v1alpha1.LabelManaged + `: "true"`},
		"NOTES.txt": {"serviceaccount:" + v1alpha1.Namespace + "/" + manifest.ControllerName},
	} {
		for _, word := range words {
			if !strings.Contains(read(name), word) {
				t.Errorf("%s does not have %q", name, word)
			}
		}
	}
	for _, port := range regexp.MustCompile(`Port: (\d+)`).FindAllStringSubmatch(read("deployment.yaml"), -1) {
		if port[1] != strconv.Itoa(manifest.PortController) {
			t.Errorf("a port of the Deployment is %s; the controller serves /healthz at %d",
				port[1], manifest.PortController)
		}
	}
}
