package chart

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/action"
	helmchart "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/release"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// dir is the chart of the repository.
const dir = "../../charts/theseus"

// kubernetes is the version that the chart is rendered for.
const kubernetes = "v1.36.3"

func load(t *testing.T) *helmchart.Chart {
	t.Helper()
	chart, err := loader.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	return chart
}

// values reads values as a user writes them, in YAML.
func values(t *testing.T, text string) map[string]any {
	t.Helper()
	all := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &all); err != nil {
		t.Fatal(err)
	}
	return all
}

// template is what `helm template` does.
func template(chart *helmchart.Chart, values map[string]any, namespace, version string) (*release.Release, error) {
	parsed, err := chartutil.ParseKubeVersion(version)
	if err != nil {
		return nil, err
	}
	install := action.NewInstall(&action.Configuration{Log: func(string, ...any) {}})
	install.ClientOnly, install.DryRun, install.DryRunOption = true, true, "client"
	install.ReleaseName, install.Namespace, install.KubeVersion = "theseus", namespace, parsed
	return install.Run(chart, values)
}

// render renders the chart of the repository with values.
func render(t *testing.T, text string) *release.Release {
	t.Helper()
	made, err := template(load(t), values(t, text), "theseus-system", kubernetes)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return made
}

// objects are all objects of a release, those of hooks included, by kind and name.
func objects(t *testing.T, made *release.Release) map[string]unstructured.Unstructured {
	t.Helper()
	texts := strings.Split("\n"+made.Manifest, "\n---\n")
	for _, hook := range made.Hooks {
		texts = append(texts, hook.Manifest)
	}
	all := map[string]unstructured.Unstructured{}
	for _, text := range texts {
		var object unstructured.Unstructured
		if err := yaml.UnmarshalStrict([]byte(text), &object.Object); err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		if object.Object == nil {
			continue
		}
		name := object.GetKind() + " " + object.GetName()
		if namespace := object.GetNamespace(); namespace != "" && namespace != "theseus-system" {
			name += " in " + namespace
		}
		if _, twice := all[name]; twice {
			t.Errorf("%s is rendered twice", name)
		}
		all[name] = object
	}
	return all
}

// into decodes an object of a release into its type, which must have all of its fields.
func into(t *testing.T, all map[string]unstructured.Unstructured, name string, typed any) {
	t.Helper()
	object, found := all[name]
	if !found {
		t.Fatalf("the chart has no %s", name)
	}
	text, err := json.Marshal(object.Object)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, typed); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// parts are the objects of a release that values change.
type parts struct {
	objects    map[string]unstructured.Unstructured
	deployment appsv1.Deployment
	check      batchv1.Job
	budget     policyv1.PodDisruptionBudget
	notes      string
}

func partsOf(t *testing.T, made *release.Release) parts {
	t.Helper()
	p := parts{objects: objects(t, made), notes: made.Info.Notes}
	into(t, p.objects, "Deployment theseus-controller", &p.deployment)
	into(t, p.objects, "Job theseus-uninstall-check", &p.check)
	into(t, p.objects, "PodDisruptionBudget theseus-controller", &p.budget)
	return p
}

// path is where a value is in a values file, such as image.tag.
func path(parents []string, name string) string { return strings.Join(append(parents, name), ".") }

// leaves are the paths of all values: maps are entered if the schema names what is in them.
func leaves(schema map[string]any, parents ...string) []string {
	var all []string
	properties, _ := schema["properties"].(map[string]any)
	for name, below := range properties {
		below := below.(map[string]any)
		if below["properties"] == nil {
			all = append(all, path(parents, name))
			continue
		}
		all = append(all, leaves(below, append(parents, name)...)...)
	}
	return all
}

// has says whether values have something at a path.
func has(values map[string]any, path string) bool {
	name, rest, deeper := strings.Cut(path, ".")
	value, found := values[name]
	if !deeper || !found {
		return found
	}
	below, _ := value.(map[string]any)
	return has(below, rest)
}

// archive packs the chart and returns its path.
func archive(t *testing.T, pack func(dir, out string) error, file string) string {
	t.Helper()
	out := t.TempDir()
	if err := pack(dir, out); err != nil {
		t.Fatal(fmt.Errorf("pack the chart: %w", err))
	}
	return filepath.Join(out, file)
}
