// Package capi lets Cluster API itself judge what Theseus makes of its configurations: by the schemas of its
// CustomResourceDefinitions, with their rules, and by its admission webhooks, called over HTTP as an API server calls them.
//
// What is judged are the golden files of internal/mirror/config, which its own tests hold to be what Theseus makes. Objects of the
// infrastructure belong to other projects and are not judged.
package capi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"golang.org/x/tools/txtar"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/client-go/rest"
	bootstrapv1beta1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta1"
	bootstrap "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1beta1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta1"
	controlplane "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	corev1beta1 "sigs.k8s.io/cluster-api/api/core/v1beta1"
	core "sigs.k8s.io/cluster-api/api/core/v1beta2"
	bootstrapwebhooks "sigs.k8s.io/cluster-api/bootstrap/kubeadm/webhooks"
	controlplanewebhooks "sigs.k8s.io/cluster-api/controlplane/kubeadm/webhooks"
	"sigs.k8s.io/cluster-api/webhooks"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	sigsyaml "sigs.k8s.io/yaml"
)

const goldens = "../../internal/mirror/config/testdata"

// outputs are the objects that Theseus makes, by golden file.
func outputs(t *testing.T) map[string][]map[string]any {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(goldens, "capi-*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]map[string]any{}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if i := slices.IndexFunc(archive.Files, func(f txtar.File) bool { return f.Name == "output.yaml" }); i >= 0 {
			found[filepath.Base(file)] = decode(t, archive.Files[i].Data)
		}
	}
	if len(found) < 4 {
		t.Fatalf("%d outputs", len(found))
	}
	return found
}

func decode(t *testing.T, text []byte) []map[string]any {
	t.Helper()
	var objects []map[string]any
	for documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 1<<20); ; {
		var object map[string]any
		if err := documents.Decode(&object); errors.Is(err, io.EOF) {
			return objects
		} else if err != nil {
			t.Fatal(err)
		}
		group, _, _ := strings.Cut(object["apiVersion"].(string), "/")
		if slices.Contains([]string{core.GroupVersion.Group, controlplane.GroupVersion.Group, bootstrap.GroupVersion.Group}, group) {
			objects = append(objects, object)
		}
	}
}

// judge is Cluster API.
type judge struct {
	definitions map[schema.GroupKind]*apiextensionsv1.CustomResourceDefinition
	scheme      *runtime.Scheme
	hooks       hooks
}

// hooks are webhooks by their path; they take the place of the server that would serve them.
type hooks struct {
	webhook.Server
	handlers map[string]http.Handler
}

func (h hooks) Register(path string, handler http.Handler) { h.handlers[path] = handler }

func newJudge(t *testing.T) *judge {
	t.Helper()
	folder, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api").Output()
	if err != nil {
		t.Fatal(err)
	}
	j := &judge{definitions: map[schema.GroupKind]*apiextensionsv1.CustomResourceDefinition{}, scheme: runtime.NewScheme(),
		hooks: hooks{webhook.NewServer(webhook.Options{}), map[string]http.Handler{}}}
	for _, part := range []string{"", "controlplane/kubeadm", "bootstrap/kubeadm"} {
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(folder)), part, "config/crd/bases/*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatal("no definitions in ", part, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			definition := &apiextensionsv1.CustomResourceDefinition{}
			if err == nil {
				err = sigsyaml.Unmarshal(text, definition)
			}
			if err != nil {
				t.Fatal(err)
			}
			j.definitions[schema.GroupKind{Group: definition.Spec.Group, Kind: definition.Spec.Names.Kind}] = definition
		}
	}
	for _, add := range []func(*runtime.Scheme) error{core.AddToScheme, controlplane.AddToScheme, bootstrap.AddToScheme,
		corev1beta1.AddToScheme, controlplanev1beta1.AddToScheme, bootstrapv1beta1.AddToScheme} {
		if err := add(j.scheme); err != nil {
			t.Fatal(err)
		}
	}
	manager, err := ctrl.NewManager(&rest.Config{Host: "http://127.0.0.1:1"}, ctrl.Options{Scheme: j.scheme, WebhookServer: j.hooks,
		Metrics:        server.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil }})
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range []interface{ SetupWebhookWithManager(ctrl.Manager) error }{&webhooks.Cluster{Client: manager.GetAPIReader()}, &webhooks.MachineDeployment{}, &webhooks.MachineSet{},
		&controlplanewebhooks.KubeadmControlPlane{}, &bootstrapwebhooks.KubeadmConfigTemplate{}} {
		if err := one.SetupWebhookWithManager(manager); err != nil {
			t.Fatal(err)
		}
	}
	return j
}

// judge is what Cluster API has against an object.
func (j *judge) judge(t *testing.T, object map[string]any) error {
	t.Helper()
	at := schema.FromAPIVersionAndKind(object["apiVersion"].(string), object["kind"].(string))
	if err := j.schema(t, at, object); err != nil {
		return err
	}
	if spec, _ := object["spec"].(map[string]any); at.Kind == "Cluster" && spec["topology"] != nil {
		return nil // its webhook asks an API server for the class
	}
	return j.admit(t, at, object)
}

// schema judges by the definition. The object gets its defaults.
func (j *judge) schema(t *testing.T, at schema.GroupVersionKind, object map[string]any) error {
	t.Helper()
	definition := j.definitions[at.GroupKind()]
	if definition == nil {
		return fmt.Errorf("Cluster API does not have the kind %s", at.Kind)
	}
	i := slices.IndexFunc(definition.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == at.Version && v.Served })
	if i < 0 {
		return fmt.Errorf("Cluster API does not serve %s", at)
	}
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(definition.Spec.Versions[i].Schema.OpenAPIV3Schema, internal, nil); err != nil {
		t.Fatal(err)
	}
	structural, err := structuralschema.NewStructural(internal)
	if err != nil {
		t.Fatal(err)
	}
	if unknown := pruning.PruneWithOptions(object, structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}); len(unknown) > 0 {
		return fmt.Errorf("unknown fields %s", strings.Join(unknown, ", "))
	}
	defaulting.Default(object, structural)
	validator, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		t.Fatal(err)
	}
	problems := validation.ValidateCustomResource(nil, object, validator)
	rules, _ := cel.NewValidator(structural, true, celconfig.PerCallLimit).Validate(t.Context(), nil, structural, object, nil, celconfig.RuntimeCELCostBudget)
	return append(problems, rules...).ToAggregate()
}

// admit has the webhooks of a kind give it its defaults, and validate it, in the version that they are for.
func (j *judge) admit(t *testing.T, at schema.GroupVersionKind, object map[string]any) error {
	t.Helper()
	hub := at.GroupKind().WithVersion(core.GroupVersion.Version)
	if at.Version != hub.Version {
		object = j.hub(t, at, hub, object)
	}
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"mutate", "validate"} {
		path := "/" + verb + "-" + strings.ReplaceAll(hub.Group, ".", "-") + "-" + hub.Version + "-" + strings.ToLower(hub.Kind)
		handler := j.hooks.handlers[path]
		if handler == nil {
			t.Fatalf("there is no webhook %s", path)
		}
		review := admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{UID: "1", Operation: admissionv1.Create,
			Object: runtime.RawExtension{Raw: data}}}
		review.APIVersion, review.Kind = "admission.k8s.io/v1", "AdmissionReview"
		asked, err := json.Marshal(review)
		if err != nil {
			t.Fatal(err)
		}
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, bytes.NewReader(asked))
		request.Header.Set("Content-Type", "application/json")
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		review = admissionv1.AdmissionReview{}
		if err := json.Unmarshal(answer.Body.Bytes(), &review); err != nil || review.Response == nil {
			t.Fatalf("%s answers %s: %v", path, answer.Body, err)
		}
		if !review.Response.Allowed {
			return errors.New(review.Response.Result.Message)
		}
		if len(review.Response.Patch) > 0 {
			patch, err := jsonpatch.DecodePatch(review.Response.Patch)
			if err == nil {
				data, err = patch.Apply(data)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return nil
}

// hub converts an object by Cluster API's own conversion.
func (j *judge) hub(t *testing.T, from, to schema.GroupVersionKind, object map[string]any) map[string]any {
	t.Helper()
	old, err := j.scheme.New(from)
	if err != nil {
		t.Fatal(err)
	}
	converted, err := j.scheme.New(to)
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object, old, true)
	}
	if err == nil {
		err = old.(conversion.Convertible).ConvertTo(converted.(conversion.Hub))
	}
	if err != nil {
		t.Fatal(err)
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(converted)
	if err != nil {
		t.Fatal(err)
	}
	(&unstructured.Unstructured{Object: fields}).SetGroupVersionKind(to)
	return fields
}

func TestValidation(t *testing.T) {
	j := newJudge(t)
	for name, objects := range outputs(t) {
		t.Run(name, func(t *testing.T) {
			if len(objects) == 0 {
				t.Fatal("nothing of it is Cluster API's")
			}
			for _, object := range objects {
				if err := j.judge(t, object); err != nil {
					t.Errorf("Cluster API refuses the %s that Theseus made: %v", object["kind"], err)
				}
			}
		})
	}
}

// TestJudgement shows that the judgement means something: each of these is refused with one thing wrong, in both versions.
func TestJudgement(t *testing.T) {
	j := newJudge(t)
	for says, c := range map[string]struct {
		kind  string
		path  []string
		value any
	}{
		"unknown fields spec.clusterNetworks": {"Cluster", []string{"spec", "clusterNetworks"}, map[string]any{}},
		"spec.clusterNetwork.pods.cidrBlocks": {"Cluster", []string{"spec", "clusterNetwork", "pods", "cidrBlocks"}, []any{"10.0.0.0/99"}},
		"spec.version":                        {"KubeadmControlPlane", []string{"spec", "version"}, "latest"},
		"must match spec.selector":            {"MachineDeployment", []string{"spec", "selector", "matchLabels"}, map[string]any{"a": "b"}},
		"spec.template.spec.clusterName":      {"MachineDeployment", []string{"spec", "template", "spec", "clusterName"}, ""},
		"joinConfiguration":                   {"KubeadmConfigTemplate", []string{"spec", "template", "spec", "joinConfiguration"}, []any{}},
	} {
		for _, name := range []string{"capi-mirror.txtar", "capi-next.txtar"} {
			t.Run(name+"/"+says, func(t *testing.T) {
				objects := outputs(t)[name]
				object := objects[slices.IndexFunc(objects, func(o map[string]any) bool { return o["kind"] == c.kind })]
				if err := unstructured.SetNestedField(object, c.value, c.path...); err != nil {
					t.Fatal(err)
				}
				if err := j.judge(t, object); err == nil || !strings.Contains(err.Error(), says) {
					t.Errorf("%v, want %q", err, says)
				}
			})
		}
	}
}
