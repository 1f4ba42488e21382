package cluster

import (
	"encoding/json"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestSecretName(t *testing.T) {
	for _, name := range []string{"WEAVE_PASSWORD", "password", "GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "clientSecret",
		"api-key", "k8s_auth_token"} {
		if !SecretName(name) {
			t.Errorf("%s holds a secret", name)
		}
	}
	for _, name := range []string{"ETCD_KEY_FILE", "passwordSecretRef", "TOKEN_TTL", "secretName",
		"IP_AUTODETECTION_METHOD", "key", "FELIX_IPINIPMTU"} {
		if SecretName(name) {
			t.Errorf("%s holds no secret", name)
		}
	}
}

// A snapshot holds the passwords of no peer, container or command line, whatever kind of object has them.
func TestTrimRedacts(t *testing.T) {
	env := []corev1.EnvVar{{Name: "WEAVE_PASSWORD", Value: "hunter2"},
		{Name: "HTTPS_PROXY", Value: "http://me:hunter2@proxy:3128"},
		{Name: "CALICO_IPV4POOL_CIDR", Value: "10.244.0.0/16"}}
	pod := func() corev1.PodSpec {
		return corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Env: append([]corev1.EnvVar{}, env...),
			Args: []string{"--token=hunter2", "--mode=vxlan"}}}}
	}
	template := corev1.PodTemplateSpec{Spec: pod()}
	meta := func() metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: "a", Namespace: "kube-system", Annotations: map[string]string{
			lastApplied: "hunter2", "objectset.rio.cattle.io/applied": "hunter2"}}
	}
	s := &Snapshot{
		DaemonSets: []appsv1.DaemonSet{{ObjectMeta: meta(), Spec: appsv1.DaemonSetSpec{Template: template}}},
		Deployments: []appsv1.Deployment{{ObjectMeta: meta(),
			Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: pod()}}}},
		Pods: []corev1.Pod{{ObjectMeta: meta(), Spec: pod()}},
		ConfigMaps: []corev1.ConfigMap{{ObjectMeta: meta(),
			Data: map[string]string{"password": "hunter2", "mode": "vxlan"}}},
		Other: []unstructured.Unstructured{
			{Object: map[string]any{"apiVersion": "metallb.io/v1beta2", "kind": "BGPPeer",
				"metadata": map[string]any{"name": "tor"},
				"spec": map[string]any{"myASN": int64(64512), "password": "hunter2",
					"passwordSecret": map[string]any{"name": "bgp"}}}},
			{Object: map[string]any{"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
				"metadata": map[string]any{"name": "n"},
				"spec":     map[string]any{"config": `{"type":"x","policy":{"k8s_auth_token":"hunter2"}}`}}},
			{Object: map[string]any{"apiVersion": "operator.tigera.io/v1", "kind": "Installation",
				"metadata": map[string]any{"name": "default"},
				"spec": map[string]any{"env": []any{map[string]any{"name": "API_TOKEN", "value": "hunter2"}},
					"args": []any{"--password=hunter2"}}}},
		},
	}
	Trim(s)
	data, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	if at := strings.Index(text, "hunter2"); at >= 0 {
		t.Errorf("a secret is left: ...%s...", text[max(0, at-120):at+20])
	}
	for _, kept := range []string{"10.244.0.0/16", "vxlan", `"passwordSecret":{"name":"bgp"}`,
		"@proxy:3128", "WEAVE_PASSWORD"} {
		if !strings.Contains(text, kept) {
			t.Errorf("%s was taken out too", kept)
		}
	}
}

func TestSecrets(t *testing.T) {
	object := map[string]any{"spec": map[string]any{"password": "x",
		"containers": []any{map[string]any{"env": []any{map[string]any{"name": "A_TOKEN", "value": "y"}}}}}}
	got := strings.Join(Secrets(object), " ")
	if want := "spec.containers[0].env[0].value spec.password"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
	if spec := object["spec"].(map[string]any); spec["password"] != "x" {
		t.Error("looking changed the object")
	}
}
