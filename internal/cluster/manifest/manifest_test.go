package manifest

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/api/v1alpha1"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const image = "theseus.dev/agent:test"

func task(t *testing.T) unstructured.Unstructured {
	t.Helper()
	object, err := Task("wave-1-join", "node-1", "join",
		json.RawMessage(`{"old":["10.0.0.0/16"],"new":["10.1.0.0/16"]}`), 3)
	if err != nil {
		t.Fatal(err)
	}
	return *object
}

// everything is every object that this package makes, by golden file.
func everything(t *testing.T) map[string][]unstructured.Unstructured {
	return map[string][]unstructured.Unstructured{
		"namespace": {*Namespace(), *NamespaceAtRest()},
		"crds":      CRDs(),
		"change":    {ChangeCRD()},
		"agent":     Agent(image, "v1.35.0", []string{"192.0.2.1:6443", "[2001:db8::1]:6443"}),
		"probes": append([]unstructured.Unstructured{*ProbePod(image, "node-1", "old"),
			*ProbePod(image, "node-1", "new"), *NewPod(image, "node-1", "a", "[]"), *HostProber(image), *ProbePolicy()},
			ProbeServices()...),
		"guard": append([]unstructured.Unstructured{*ForGuard(WithHostPorts(ProbePod(image, "node-1", "old")))},
			LocalServices()...),
		"bench": {*BenchResponder(image, "node-1", BenchNear, "id", time.Minute, "[]"),
			*BenchResponder(image, "node-2", BenchFarHost, "id", time.Minute, `[{"url":"http://127.0.0.1:1/"}]`),
			*BenchService(BenchNear, "id"),
			*BenchPod(image, "node-1", BenchClientName(2, 0), "{}", "id", time.Minute),
			*BenchPolicies(BenchFar, "id", BenchClientName(1, 2), 2)[0],
			*BenchPolicies(BenchFar, "id", BenchClientName(1, 2), 2)[1]},
		"task": {task(t)},
		"hold": Hold("theseus-hold", "net", map[string]string{"app": "agent"}),
		"introduce": Introduce(image, "cilium", []string{"10.244.0.0/16"}, []rbacv1.PolicyRule{
			{APIGroups: []string{"cilium.io"}, Resources: []string{"ciliumendpoints"}, Verbs: []string{"create"}}}, 2,
			[]string{"192.0.2.1:6443"}),
		"approval": append(ApprovalPolicy(), *Approval("flannel-to-calico-1", "9f86d081", "ann@example.com", "")),
	}
}

func TestGolden(t *testing.T) {
	for name, objects := range everything(t) {
		var got bytes.Buffer
		for _, object := range objects {
			text, err := yaml.Marshal(object.Object)
			if err != nil {
				t.Fatal(err)
			}
			got.WriteString("---\n")
			got.Write(text)
		}
		path := filepath.Join("testdata", name+".yaml")
		if *update {
			if err := os.WriteFile(path, got.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got.String()); diff != "" {
			t.Errorf("%s (-want +got; -update rewrites it):\n%s", path, diff)
		}
	}
}

// TestShape decodes every object strictly into its own type, and checks what all must carry.
func TestShape(t *testing.T) {
	types := map[string]func() any{
		"Namespace": func() any { return new(corev1.Namespace) }, "ServiceAccount": func() any {
			return new(corev1.ServiceAccount)
		},
		"Role": func() any { return new(rbacv1.Role) }, "RoleBinding": func() any { return new(rbacv1.RoleBinding) },
		"ClusterRole": func() any { return new(rbacv1.ClusterRole) }, "ClusterRoleBinding": func() any {
			return new(rbacv1.ClusterRoleBinding)
		},
		"DaemonSet": func() any { return new(appsv1.DaemonSet) }, "Pod": func() any { return new(corev1.Pod) },
		"Service": func() any { return new(corev1.Service) }, "Deployment": func() any {
			return new(appsv1.Deployment)
		}, "NetworkPolicy": func() any { return new(networkingv1.NetworkPolicy) },
		"NodeTask":                         func() any { return new(v1alpha1.NodeTask) },
		"Approval":                         func() any { return new(v1alpha1.Approval) },
		"ValidatingAdmissionPolicy":        func() any { return new(admissionv1.ValidatingAdmissionPolicy) },
		"ValidatingAdmissionPolicyBinding": func() any { return new(admissionv1.ValidatingAdmissionPolicyBinding) },
	}
	for _, objects := range everything(t) {
		for _, object := range objects {
			name := object.GetKind() + "/" + object.GetName()
			if object.GetLabels()[v1alpha1.LabelManaged] != "true" {
				t.Errorf("%s does not carry %s", name, v1alpha1.LabelManaged)
			}
			if _, has := object.Object["status"]; has {
				t.Errorf("%s carries a status", name)
			}
			if object.GetKind() == "CustomResourceDefinition" {
				continue
			}
			make, known := types[object.GetKind()]
			if !known {
				t.Errorf("%s: no type to check it against", name)
				continue
			}
			text, err := object.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			if err := yaml.UnmarshalStrict(text, make()); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestProbePods: those of many nodes are as each on its own, and none shares the metadata or the fields of the spec,
// which others set.
func TestProbePods(t *testing.T) {
	pod := ProbePods(image, "new")
	var made []*unstructured.Unstructured
	for _, node := range []string{"node-1", strings.Repeat("long", 20), "node-2"} {
		made = append(made, pod(node))
		if diff := cmp.Diff(ProbePod(image, node, "new"), made[len(made)-1]); diff != "" {
			t.Errorf("%s (-alone +among many):\n%s", node, diff)
		}
	}
	made[0].SetAnnotations(map[string]string{"a": "b"})
	made[0].SetLabels(map[string]string{"a": "b"})
	_ = unstructured.SetNestedField(made[0].Object, "another", "spec", "nodeName")
	if diff := cmp.Diff(ProbePod(image, "node-2", "new"), made[2]); diff != "" {
		t.Errorf("node-2 shares a part with node-1:\n%s", diff)
	}
}

// TestProbersAreConfined: a prober is any user but root, without a capability, and without a right to the API or to
// more of the node than one folder of its own.
func TestProbersAreConfined(t *testing.T) {
	var daemons appsv1.DaemonSet
	pods := map[string]*corev1.PodSpec{"host": &daemons.Spec.Template.Spec}
	into(t, HostProber(image), &daemons)
	for _, network := range []string{"old", "new"} {
		var pod corev1.Pod
		into(t, ProbePod(image, "node-1", network), &pod)
		if pod.Spec.PriorityClassName != "" {
			t.Errorf("the probe pod has the priority %s, for which a kubelet ends users' pods",
				pod.Spec.PriorityClassName)
		}
		pods[network] = &pod.Spec
	}
	for network, spec := range pods {
		security := spec.SecurityContext
		if *spec.AutomountServiceAccountToken || !*security.RunAsNonRoot || *security.RunAsUser != ProberUser ||
			security.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: the pod: %+v", network, security)
		}
		if len(spec.Containers) != 2 {
			t.Errorf("%s: %d containers, want the prober and the second responder", network, len(spec.Containers))
		}
		for _, container := range spec.Containers {
			mustBeConfined(t, network+"/"+container.Name, container)
		}
		if mounts := spec.Containers[1].VolumeMounts; len(mounts) > 0 {
			t.Errorf("%s: the second responder has volumes: %+v", network, mounts)
		}
		if len(spec.Volumes) != 1 || spec.Volumes[0].HostPath.Path != ProbeDir+"/"+network {
			t.Errorf("%s: volumes: %+v", network, spec.Volumes)
		}
		if spec.HostPID || spec.HostIPC || spec.HostNetwork != (network == "host") {
			t.Errorf("%s is in namespaces of the node", network)
		}
	}
}

// TestIntroducerIsConfined: the program that introduces pods has no more of its node than a network and a port of
// loopback, and no more rights than to read pods and namespaces, and those that it is given.
func TestIntroducerIsConfined(t *testing.T) {
	rights := []rbacv1.PolicyRule{{APIGroups: []string{"cilium.io"}, Resources: []string{"ciliumendpoints"},
		Verbs: []string{"create"}}}
	for _, object := range Introduce(image, "cilium", []string{"10.244.0.0/16"}, rights, 2, nil) {
		switch object.GetKind() {
		case "ClusterRole":
			var role rbacv1.ClusterRole
			into(t, &object, &role)
			reads := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces", "pods"},
				Verbs: []string{"get", "list", "watch"}}
			if diff := cmp.Diff(append([]rbacv1.PolicyRule{reads}, rights...), role.Rules); diff != "" {
				t.Errorf("its rights:\n%s", diff)
			}
		case "Deployment":
			var deployment appsv1.Deployment
			into(t, &object, &deployment)
			spec := deployment.Spec.Template.Spec
			if security := spec.SecurityContext; !*security.RunAsNonRoot || *security.RunAsUser != ProberUser ||
				security.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
				t.Errorf("the pod: %+v", security)
			}
			if first := spec.Tolerations[0]; first.TolerationSeconds == nil ||
				first.Key != corev1.TaintNodeUnreachable {
				t.Errorf("it stays on a node that is lost: %+v", spec.Tolerations)
			}
			if port := spec.Containers[0].Ports; *deployment.Spec.Replicas != 2 || len(port) != 1 ||
				port[0].HostPort != PortIntroduce {
				t.Errorf("its replicas may run on one node: %+v", port)
			}
			if spec.HostPID || spec.HostIPC || len(spec.Volumes) > 0 || len(spec.Containers) != 1 {
				t.Errorf("it has more of its node than the network: %+v", spec)
			}
			mustBeConfined(t, "introduce", spec.Containers[0])
		}
	}
}

// TestBenchIsConfined: the pods of a benchmark have no more of their node than the network, no token, and an end; only
// those on the host network use that.
func TestBenchIsConfined(t *testing.T) {
	pods := map[string]*unstructured.Unstructured{BenchClient: BenchPod(image, "node-1", BenchClientName(1, 0), "{}",
		"id", time.Minute)}
	for _, part := range []string{BenchNear, BenchFar, BenchNearHost, BenchFarHost} {
		pods[part] = BenchResponder(image, "node-1", part, "id", time.Minute, "")
	}
	for part, object := range pods {
		var pod corev1.Pod
		into(t, object, &pod)
		spec := pod.Spec
		if security := spec.SecurityContext; !*security.RunAsNonRoot || *security.RunAsUser != ProberUser ||
			security.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: %+v", part, security)
		}
		if spec.HostNetwork != strings.HasSuffix(part, "-host") || spec.HostPID || spec.HostIPC ||
			len(spec.Volumes) > 0 || *spec.AutomountServiceAccountToken || spec.PriorityClassName != "" {
			t.Errorf("%s has more of its node, or of the cluster: %+v", part, spec)
		}
		if *spec.ActiveDeadlineSeconds != 60 || spec.RestartPolicy != corev1.RestartPolicyNever {
			t.Errorf("%s has no end: %+v", part, spec)
		}
		if len(spec.Tolerations) > 0 {
			t.Errorf("%s stays on a node that pods are evicted from: %+v", part, spec.Tolerations)
		}
		for _, container := range spec.Containers {
			mustBeConfined(t, part, container)
			// The kubelet of a lost node ends nothing: the program does.
			if at := slices.Index(container.Args, "--within"); at < 0 || container.Args[at+1] != "1m0s" {
				t.Errorf("%s, %s has no end of its own: %v", part, container.Name, container.Args)
			}
		}
	}
}

// mustBeConfined demands a container without a capability, with a read-only root and with limits.
func mustBeConfined(t *testing.T, name string, container corev1.Container) {
	t.Helper()
	own := container.SecurityContext
	if own.Privileged != nil || *own.AllowPrivilegeEscalation || !*own.ReadOnlyRootFilesystem ||
		len(own.Capabilities.Add) > 0 ||
		!slices.Equal(own.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("%s: %+v", name, own)
	}
	if container.Resources.Limits.Memory().IsZero() || container.Resources.Limits.Cpu().IsZero() {
		t.Errorf("%s has no limits", name)
	}
}

func into(t *testing.T, object *unstructured.Unstructured, typed any) {
	t.Helper()
	text, err := object.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(text, typed)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestNodePortsAreTCP: nothing that answers by UDP is at a port of a node, where a false sender's address costs
// nothing.
func TestNodePortsAreTCP(t *testing.T) {
	ports := 0
	for _, object := range slices.Concat(ProbeServices(), LocalServices()) {
		var service corev1.Service
		into(t, &object, &service)
		for _, port := range service.Spec.Ports {
			if service.Spec.Type == corev1.ServiceTypeNodePort && port.Protocol != corev1.ProtocolTCP {
				t.Errorf("%s has %s at a node port", service.Name, port.Protocol)
			}
			if service.Spec.Type == corev1.ServiceTypeNodePort {
				ports++
			}
		}
	}
	if ports != 6 {
		t.Errorf("%d node ports", ports)
	}
}

// TestLocalServices: each of them has its own policy, and no other Service of the probes has one, so that nothing else
// becomes silent on a node without a probe pod.
func TestLocalServices(t *testing.T) {
	local := map[string]string{}
	for _, object := range slices.Concat(ProbeServices(), LocalServices()) {
		var service corev1.Service
		into(t, &object, &service)
		if policy := service.Spec.InternalTrafficPolicy; policy != nil {
			local[service.Name] += "inside " + string(*policy)
		}
		if policy := service.Spec.ExternalTrafficPolicy; policy != "" {
			local[service.Name] += "outside " + string(policy)
		}
		if service.Spec.Selector[v1alpha1.LabelProbe] == "" {
			t.Errorf("%s selects %v", service.Name, service.Spec.Selector)
		}
	}
	if want := map[string]string{ProbeLocalName("old"): "inside Local",
		ProbeLocalPortName("old"): "outside Local"}; !maps.Equal(local, want) {
		t.Errorf("%v, want %v", local, want)
	}
}

// TestWithHostPorts: each container of a probe pod has one port of the node, for TCP alone, and none is a port that the
// host's own prober has.
func TestWithHostPorts(t *testing.T) {
	var pod corev1.Pod
	into(t, WithHostPorts(ProbePod(image, "node-1", "old")), &pod)
	var ports []int32
	for _, container := range pod.Spec.Containers {
		for _, port := range container.Ports {
			if port.Protocol != corev1.ProtocolTCP || port.HostPort != port.ContainerPort+HostPortOffset ||
				port.HostPort == PortTCP+HostOffset {
				t.Errorf("%s: %+v", container.Name, port)
			}
			ports = append(ports, port.ContainerPort)
		}
	}
	if !slices.Equal(ports, []int32{PortTCP, PortTCP + SecondOffset}) {
		t.Errorf("ports %v", ports)
	}
}

// TestStructural holds the rules by which the API server accepts a schema, on every node of it.
func TestStructural(t *testing.T) {
	for _, crd := range CRDs() {
		versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
		if err != nil || len(versions) != 1 {
			t.Fatalf("%s: versions %v: %v", crd.GetName(), versions, err)
		}
		root, _, _ := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema")
		walk(t, crd.GetName(), root)
	}
}

func walk(t *testing.T, path string, schema map[string]any) {
	_, typed := schema["type"]
	free := schema["x-kubernetes-preserve-unknown-fields"] == true
	if !typed && !free {
		t.Errorf("%s has no type", path)
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		if name == "" {
			t.Errorf("%s has a property without a name", path)
		}
		walk(t, path+"."+name, property.(map[string]any))
	}
	if schema["type"] == "array" {
		items, has := schema["items"].(map[string]any)
		if !has {
			t.Fatalf("%s has no items", path)
		}
		walk(t, path+"[]", items)
	}
}

func TestTaskRefusesWhatIsNotJSON(t *testing.T) {
	if _, err := Task("a", "node-1", "join", json.RawMessage(`{`), 0); err == nil {
		t.Error("half an object was accepted")
	}
	object, err := Task("a", "node-1", "facts", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, has, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "args"); has {
		t.Error("a task without arguments carries args")
	}
}

func TestNodeValue(t *testing.T) {
	long := strings.Repeat("node.", 40) + "example"
	other := long + "2"
	for _, node := range []string{"node-1", "a.b.example", long, other} {
		if problems := validation.IsValidLabelValue(NodeValue(node)); len(problems) > 0 {
			t.Errorf("NodeValue(%q) = %q: %v", node, NodeValue(node), problems)
		}
	}
	if NodeValue("node-1") != "node-1" {
		t.Error("a short name must stay itself")
	}
	if NodeValue(long) == NodeValue(other) {
		t.Error("two long names have one value")
	}
}

// TestAgentOfOldKubernetes: an API server that has no admission policies is given none; it would refuse the whole
// installation.
func TestAgentOfOldKubernetes(t *testing.T) {
	kinds := func(version string) (all []string) {
		for _, object := range Agent(image, version, nil) {
			all = append(all, object.GetKind())
		}
		return all
	}
	for _, version := range []string{"v1.29.15", "v1.23.17-eks-1", ""} {
		if slices.Contains(kinds(version), "ValidatingAdmissionPolicy") {
			t.Errorf("%q: %q", version, kinds(version))
		}
	}
	for _, version := range []string{"v1.30.0", "v1.33.4+k3s1", "v1.35.0"} {
		if got := kinds(version); !slices.Contains(got, "ValidatingAdmissionPolicy") || got[len(got)-1] != "DaemonSet" {
			t.Errorf("%q: %q", version, got)
		}
	}
}

// TestNewPodIsConfined: a new pod has no privileges, no token, no volume and no priority, ends quickly, and is selected
// by no Service of the probes.
func TestNewPodIsConfined(t *testing.T) {
	object := NewPod(image, "node-1", "b", `[{"id":"x"}]`)
	var pod corev1.Pod
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &pod); err != nil {
		t.Fatal(err)
	}
	spec := pod.Spec
	if spec.HostNetwork || len(spec.Volumes) > 0 || *spec.AutomountServiceAccountToken ||
		spec.PriorityClassName != "" || spec.RestartPolicy != corev1.RestartPolicyNever ||
		!*spec.SecurityContext.RunAsNonRoot ||
		*spec.TerminationGracePeriodSeconds > 1 || spec.NodeName != "node-1" {
		t.Errorf("%+v", spec)
	}
	for _, c := range spec.Containers {
		if *c.SecurityContext.AllowPrivilegeEscalation || !*c.SecurityContext.ReadOnlyRootFilesystem ||
			len(c.SecurityContext.Capabilities.Add) > 0 || c.Resources.Limits.Memory().IsZero() {
			t.Errorf("%+v", c)
		}
	}
	services := 0
	for _, object := range ProbeServices() {
		selector, _, err := unstructured.NestedStringMap(object.Object, "spec", "selector")
		if err != nil || len(selector) == 0 {
			t.Fatalf("%s: %v, %v", object.GetName(), selector, err)
		}
		services++
		for key, value := range selector {
			if pod.Labels[key] == value {
				t.Errorf("the Service %s selects it by %s=%s", object.GetName(), key, value)
			}
		}
	}
	if services == 0 {
		t.Error("there is no Service")
	}
}

// TestBarePodsLabels: a ReplicaSet adopts a bare pod with labels that its selector matches, so those of Theseus are all
// of its own domain.
func TestBarePodsLabels(t *testing.T) {
	for _, pod := range []*unstructured.Unstructured{ProbePod("image", "n", "old"), ProbePods("image", "new")("n"),
		NewPod("image", "n", "a", "[]")} {
		if len(pod.GetLabels()) == 0 {
			t.Errorf("%s has no labels", pod.GetName())
		}
		for key := range pod.GetLabels() {
			if !strings.HasPrefix(key, "theseus.dev/") {
				t.Errorf("%s has the label %s", pod.GetName(), key)
			}
		}
	}
}

// TestBenchPolicies: there are as many rules as were asked for, no two alike, none that matches an address of a
// cluster; all select the benchmark's responder alone, and the last one admits one client to all ports but that of
// HTTP.
func TestBenchPolicies(t *testing.T) {
	for _, rules := range []int{1, 100, 101, 10000} {
		all := BenchPolicies(BenchFar, "id", "client-1", rules)
		seen := map[string]bool{}
		for i, object := range all {
			var policy networkingv1.NetworkPolicy
			into(t, object, &policy)
			if policy.Namespace != v1alpha1.Namespace || !maps.Equal(policy.Spec.PodSelector.MatchLabels,
				map[string]string{LabelBenchID: "id", LabelBench: BenchFar}) || policy.Labels[LabelBenchID] != "id" {
				t.Fatalf("%+v", policy)
			}
			if text, err := object.MarshalJSON(); err != nil || len(text) > 100<<10 {
				t.Errorf("a policy has %d bytes, %v", len(text), err)
			}
			if i == len(all)-1 {
				rule := policy.Spec.Ingress[0]
				if len(policy.Spec.Ingress) != 1 || len(rule.Ports) != 3 ||
					rule.From[0].PodSelector.MatchLabels[LabelBenchClient] != "client-1" {
					t.Errorf("%+v", policy.Spec)
				}
				for _, port := range rule.Ports {
					if port.Port.IntValue() == PortHTTP {
						t.Error("the denied port is admitted")
					}
				}
				continue
			}
			for _, rule := range policy.Spec.Ingress {
				cidr := rule.From[0].IPBlock.CIDR
				if !netip.MustParsePrefix("198.18.0.0/15").Contains(netip.MustParsePrefix(cidr).Addr()) {
					t.Errorf("%s is not of the range for benchmarks", cidr)
				}
				seen[cidr+" "+rule.Ports[0].Port.String()] = true
			}
		}
		if len(seen) != rules {
			t.Errorf("%d rules, want %d", len(seen), rules)
		}
	}
}
