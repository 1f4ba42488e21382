package objects

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/theseus-cni/theseus/internal/mirror/image"
)

// objects reads documents of YAML.
func objects(t testing.TB, text string) []Object {
	t.Helper()
	var found []Object
	for _, document := range strings.Split(text, "\n---\n") {
		found = append(found, object(t, document))
	}
	return found
}

func object(t testing.TB, text string) Object {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(data); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return o
}

// TestClean holds what is left of objects: with managers that tell who owns what, and without.
func TestClean(t *testing.T) {
	for _, test := range []struct{ name, in, want string }{
		{"an autoscaled Deployment: defaults go, the number stays", `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
  uid: u
  resourceVersion: "7"
  generation: 3
  creationTimestamp: "2026-01-01T00:00:00Z"
  finalizers: [x/y]
  annotations: {deployment.kubernetes.io/revision: "4", note: mine}
  managedFields:
  - {manager: kubectl, operation: Apply, apiVersion: apps/v1, fieldsType: FieldsV1, fieldsV1: {"f:metadata": {"f:annotations": {"f:note": {}}}, "f:spec": {"f:selector": {}, "f:template": {"f:metadata": {"f:labels": {"f:app": {}}}, "f:spec": {"f:containers": {'k:{"name":"web"}': {".": {}, "f:name": {}, "f:image": {}, "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:containerPort": {}}}}}, "f:volumes": {'k:{"name":"tmp"}': {".": {}, "f:name": {}, "f:emptyDir": {}}}}}}}}
  - {manager: kube-controller-manager, operation: Update, apiVersion: apps/v1, subresource: scale, fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:replicas": {}}}}
  - {manager: kube-controller-manager, operation: Update, apiVersion: apps/v1, subresource: status, fieldsType: FieldsV1, fieldsV1: {"f:status": {}}}
  - {manager: kube-controller-manager, operation: Update, apiVersion: apps/v1, fieldsType: FieldsV1, fieldsV1: {"f:metadata": {"f:annotations": {"f:deployment.kubernetes.io/revision": {}}}}}
spec:
  replicas: 9
  progressDeadlineSeconds: 600
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: a, imagePullPolicy: Always, ports: [{containerPort: 80, protocol: TCP}]}]
      restartPolicy: Always
      volumes: [{name: tmp, emptyDir: {}}]
status: {replicas: 9}`, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, annotations: {note: mine}}
spec:
  replicas: 9
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: a, ports: [{containerPort: 80}]}]
      volumes: [{name: tmp, emptyDir: {}}]`},
		{"empty selectors and rules keep their meaning, with managers", `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: p
  namespace: shop
  managedFields: [{manager: kubectl, operation: Update, apiVersion: networking.k8s.io/v1, fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:podSelector": {}, "f:egress": {}, "f:ingress": {}, "f:policyTypes": {}}}}]
spec: {podSelector: {}, egress: [{}], ingress: [], policyTypes: [Egress]}`, `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: p, namespace: shop}
spec: {podSelector: {}, egress: [{}], ingress: [], policyTypes: [Egress]}`},
		{"and without", `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: p, namespace: shop, labels: {}}
spec: {podSelector: {}, egress: [{}], ingress: [{from: [{namespaceSelector: {}}]}]}`, `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: p, namespace: shop}
spec: {podSelector: {}, egress: [{}], ingress: [{from: [{namespaceSelector: {}}]}]}`},
		{"an empty map that a controller filled later", `
apiVersion: example.com/v1
kind: Thing
metadata:
  name: t
  namespace: shop
  managedFields:
  - {manager: helm, operation: Update, apiVersion: example.com/v1, fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:limits": {}, "f:set": {"v:\"b\"": {}}, "f:list": {"i:0": {}}}}}
  - {manager: kube-controller-manager, operation: Update, apiVersion: example.com/v1, fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:limits": {"f:cpu": {}}, "f:set": {"v:\"a\"": {}}}}}
spec: {limits: {cpu: 1}, set: [a, b], list: [x], made: 7}`, `
apiVersion: example.com/v1
kind: Thing
metadata: {name: t, namespace: shop}
spec: {limits: {}, set: [b], list: [x]}`},
		{"a manager of another version: nothing is dropped by it", `
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: web
  namespace: shop
  managedFields: [{manager: kubectl, operation: Update, apiVersion: autoscaling/v1, fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:targetCPUUtilizationPercentage": {}}}}]
spec: {maxReplicas: 3, metrics: [{type: Resource}]}
status: {}`, `
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec: {maxReplicas: 3, metrics: [{type: Resource}]}`},
		{"a Service that nobody knows the owners of", `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {type: LoadBalancer, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ipFamilies: [IPv4], ipFamilyPolicy: SingleStack, healthCheckNodePort: 31000, ports: [{port: 80, nodePort: 30000}], selector: {}}`, `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {type: LoadBalancer, ports: [{port: 80}], selector: {}}`},
		{"a node port that a user chose", `
apiVersion: v1
kind: Service
metadata:
  name: web
  namespace: shop
  managedFields: [{manager: kubectl, operation: Update, apiVersion: v1, fieldsType: FieldsV1, fieldsV1: {"f:spec": {"f:type": {}, "f:ports": {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}, "f:nodePort": {}}, 'k:{"port":81,"protocol":"TCP"}': {".": {}, "f:port": {}}}}}}]
spec: {type: NodePort, clusterIP: 10.0.0.1, ports: [{port: 80, protocol: TCP, nodePort: 30000}, {port: 81, protocol: TCP, nodePort: 30001}]}`, `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {type: NodePort, ports: [{port: 80, nodePort: 30000}, {port: 81}]}`},
		{"a headless Service", `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: None, clusterIPs: [None]}`, `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: None, clusterIPs: [None]}`},
		{"the token of a service account", `
apiVersion: v1
kind: Secret
metadata: {name: t, namespace: shop, annotations: {kubernetes.io/service-account.name: web, kubernetes.io/service-account.uid: u}}
type: kubernetes.io/service-account-token
data: {token: eA==, ca.crt: eA==, namespace: eA==, extra: eA==}`, `
apiVersion: v1
kind: Secret
metadata: {name: t, namespace: shop, annotations: {kubernetes.io/service-account.name: web}}
type: kubernetes.io/service-account-token
data: {extra: eA==}`},
		{"a service account with a token's secret", `
apiVersion: v1
kind: ServiceAccount
metadata: {name: web, namespace: shop}
secrets: [{name: web-token-abc12}, {name: mine}]
imagePullSecrets: [{name: pull}]`, `
apiVersion: v1
kind: ServiceAccount
metadata: {name: web, namespace: shop}
secrets: [{name: mine}]
imagePullSecrets: [{name: pull}]`},
		{"a Job", `
apiVersion: batch/v1
kind: Job
metadata: {name: j, namespace: shop, labels: {controller-uid: u, app: j}}
spec: {selector: {matchLabels: {controller-uid: u}}, template: {metadata: {labels: {controller-uid: u, job-name: j}}, spec: {}}}`, `
apiVersion: batch/v1
kind: Job
metadata: {name: j, namespace: shop, labels: {app: j}}
spec: {template: {metadata: {labels: {}}, spec: {}}}`},
		{"a claim", `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: c, namespace: shop, annotations: {pv.kubernetes.io/bind-completed: "yes", volume.kubernetes.io/selected-node: n}, finalizers: [kubernetes.io/pvc-protection]}
spec: {volumeName: pv-1, volumeMode: Filesystem, accessModes: [ReadWriteOnce]}
status: {phase: Bound}`, `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: c, namespace: shop}
spec: {accessModes: [ReadWriteOnce]}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := object(t, test.in)
			before := in.DeepCopy()
			if diff := cmp.Diff(object(t, test.want).Object, Clean(in).Object); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(before.Object, in.Object); diff != "" {
				t.Errorf("the original was changed:\n%s", diff)
			}
		})
	}
}

// namespace is a world with a bit of everything; owned objects name their owners by name.
const world = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Namespace
metadata: {name: other}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: web, namespace: shop}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kube-root-ca.crt, namespace: shop}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, uid: d}
spec: {replicas: 4, template: {spec: {serviceAccountName: web, priorityClassName: high, containers: [{name: a, image: "old.test/web:1"}], volumes: [{name: d, persistentVolumeClaim: {claimName: data}}]}}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web-1, namespace: shop, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: d, controller: true}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-1-x, namespace: shop, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-1, uid: r, controller: true}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: kept, namespace: shop, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: d}]}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly, namespace: shop, uid: c}
spec: {schedule: x}
---
apiVersion: batch/v1
kind: Job
metadata: {name: nightly-1, namespace: shop, ownerReferences: [{apiVersion: batch/v1, kind: CronJob, name: nightly, uid: c, controller: true}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: done, namespace: shop}
status: {conditions: [{type: Complete, status: "True"}]}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop, annotations: {external-dns.alpha.kubernetes.io/hostname: web.example.com, plain: x}}
spec: {selector: {app: web}, loadBalancerIP: 192.0.2.1, externalIPs: [192.0.2.2]}
---
apiVersion: v1
kind: Endpoints
metadata: {name: web, namespace: shop}
---
apiVersion: v1
kind: Service
metadata: {name: outside, namespace: shop}
spec: {ports: [{port: 1}]}
---
apiVersion: v1
kind: Endpoints
metadata: {name: outside, namespace: shop}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-x, namespace: shop, labels: {endpointslice.kubernetes.io/managed-by: endpointslice-controller.k8s.io}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: shop}
spec: {storageClassName: fast, volumeName: pv-1, resources: {requests: {storage: 8Gi}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: pv-1}
spec: {csi: {volumeHandle: vol-0abc}}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: unused}
---
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
---
apiVersion: elbv2.k8s.aws/v1beta1
kind: TargetGroupBinding
metadata: {name: web, namespace: shop, uid: t}
---
apiVersion: s3.services.k8s.aws/v1
kind: Bucket
metadata: {name: b, namespace: shop}
---
apiVersion: example.com/v1
kind: Database
metadata: {name: main, namespace: shop, uid: db}
spec: {storage: {kind: Tier, apiGroup: example.com, name: gold}, image: "old.test/db"}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: main, namespace: shop, ownerReferences: [{apiVersion: example.com/v1, kind: Database, name: main, uid: db, controller: true}]}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: databases.example.com}
spec: {group: example.com, names: {kind: Database}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: tiers.example.com}
spec: {group: example.com, names: {kind: Tier}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: unused.example.com}
spec: {group: example.com, names: {kind: Unused}}
---
apiVersion: example.com/v1
kind: Tier
metadata: {name: gold}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: view, labels: {kubernetes.io/bootstrapping: rbac-defaults}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: web-reads}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{kind: ServiceAccount, name: web, namespace: shop}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: others}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: ServiceAccount, name: web, namespace: other}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: shop-hook}
webhooks: [{name: a, clientConfig: {service: {name: web, namespace: shop}, caBundle: eA==}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: other-hook}
webhooks: [{name: a, clientConfig: {service: {name: web, namespace: other}}}]`

func names(plan *Plan) []string {
	var found []string
	for i, wave := range plan.Waves {
		for _, item := range wave {
			line := fmt.Sprintf("%d %s %s", i, item.Action, KeyOf(item.Object))
			found = append(found, strings.TrimSpace(line+" "+strings.Join(item.Did, ", ")))
		}
	}
	return found
}

func TestMake(t *testing.T) {
	rules, err := image.ParseRules([]string{"old.test=new.test"})
	if err != nil {
		t.Fatal(err)
	}
	plan := Make(World{Source: "src", Namespaces: []string{"shop"}, Objects: objects(t, world)}, Options{Images: rules})
	if diff := cmp.Diff([]string{
		"0 copy Namespace shop",
		"1 copy CustomResourceDefinition.apiextensions.k8s.io databases.example.com",
		"1 copy CustomResourceDefinition.apiextensions.k8s.io tiers.example.com",
		"2 copy ClusterRole.rbac.authorization.k8s.io reader",
		"2 copy PriorityClass.scheduling.k8s.io high",
		"2 copy StorageClass.storage.k8s.io fast",
		"2 copy ServiceAccount shop/web",
		"3 copy ClusterRoleBinding.rbac.authorization.k8s.io web-reads",
		"3 copy PersistentVolumeClaim shop/data",
		"3 copy Service shop/outside",
		"3 disarm Service shop/web external-dns.alpha.kubernetes.io/hostname, spec.loadBalancerIP, spec.externalIPs",
		"4 copy Endpoints shop/outside",
		"5 copy Tier.example.com gold",
		"6 copy Database.example.com shop/main",
		"6 suspend CronJob.batch shop/nightly suspended",
		"6 copy Deployment.apps shop/web spec.template.spec.containers[0].image: new.test/web:1",
		"7 copy ConfigMap shop/kept",
		"7 copy HorizontalPodAutoscaler.autoscaling shop/web",
		"8 copy ValidatingWebhookConfiguration.admissionregistration.k8s.io shop-hook",
	}, names(plan)); diff != "" {
		t.Errorf("what goes over (-want +got):\n%s", diff)
	}
	var left, asked []string
	for _, one := range plan.Left {
		if !one.Own {
			left = append(left, one.Key.String())
		}
	}
	for _, one := range plan.Questions {
		asked = append(asked, one.Key.String()+": "+one.Why)
	}
	if diff := cmp.Diff([]string{"Job.batch shop/done", "TargetGroupBinding.elbv2.k8s.aws shop/web"},
		left); diff != "" {
		t.Errorf("what does not (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		"Bucket.s3.services.k8s.aws shop/b: its controller manages something in the cloud, and two " +
			"controllers would manage one thing",
		"PersistentVolumeClaim shop/data: its data (8Gi, class fast, vol-0abc) is not copied; " +
			"it holds back Deployment web",
	}, asked); diff != "" {
		t.Errorf("what is asked (-want +got):\n%s", diff)
	}
}

// TestOwnerThatIsGone: what never goes over needs no owner, and of everything else a person decides.
func TestOwnerThatIsGone(t *testing.T) {
	const owned = `
apiVersion: %s
kind: %s
metadata: {name: web-1, namespace: shop, ownerReferences: [{apiVersion: v1, kind: Gone, name: web-1, uid: u1, controller: true}]}`
	in := []Object{object(t, fmt.Sprintf(owned, "acme.cert-manager.io/v1", "Order")),
		object(t, fmt.Sprintf(owned, "v1", "ConfigMap"))}
	plan := Make(World{Source: "src", Namespaces: []string{"shop"}, Objects: in}, Options{})
	if len(plan.Questions) != 1 || plan.Questions[0].Key.Kind != "ConfigMap" || len(plan.Left) != 1 ||
		plan.Left[0].Key.Kind != "Order" {
		t.Errorf("asked are %v, left is %v", plan.Questions, plan.Left)
	}
}

// TestDecisions: an object's name counts before its annotation, and that before its kind.
func TestDecisions(t *testing.T) {
	text := `
apiVersion: batch/v1
kind: CronJob
metadata: {name: %s, namespace: shop, annotations: {mirror.theseus.dev/action: %s}}
spec: {schedule: x}`
	in := []Object{object(t, fmt.Sprintf(text, "a", "skip")), object(t, fmt.Sprintf(text, "b", "copy")),
		object(t, fmt.Sprintf(text, "c", "burn"))}
	in = append(in, objects(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: consumer, namespace: shop, annotations: {mirror.theseus.dev/action: suspend}}
spec: {replicas: 3}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: shop}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: x, namespace: shop, annotations: {mirror.theseus.dev/action: suspend}}`)...)
	plan := Make(World{Source: "src", Namespaces: []string{"shop"}, Objects: in},
		Options{EmptyVolumes: []string{"shop/data"},
			Decide: map[string]Action{"CronJob.batch": Suspend, "CronJob.batch shop/b": Disarm}})
	var got []string
	for _, one := range plan.Questions {
		got = append(got, one.Key.String()+": "+one.Why)
	}
	if diff := cmp.Diff([]string{
		`ConfigMap shop/x: Theseus does not know how to suspend a ConfigMap: choose skip, disarm or copy`,
		`CronJob.batch shop/c: the annotation mirror.theseus.dev/action: "burn" is not an action: use copy, skip, suspend or disarm`,
	}, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, want := range []string{"copy PersistentVolumeClaim shop/data",
		"suspend Deployment.apps shop/consumer suspended", "disarm CronJob.batch shop/b"} {
		if !slices.ContainsFunc(names(plan), func(name string) bool { return strings.HasSuffix(name, want) }) {
			t.Errorf("%q is not in %q", want, names(plan))
		}
	}
	if n := at(plan.items[Key{"apps", "Deployment", "shop", "consumer"}].Object, "spec", "replicas"); n != int64(0) {
		t.Errorf("the consumer has %v replicas", n)
	}
	if plan.items[Key{"batch", "CronJob", "shop", "a"}] != nil {
		t.Error("a went over")
	}
}

// TestOrderOfRandomReferences: whatever refers to whatever, everything comes once and, where references make no
// circle, after what it refers to, but for what is last by its kind.
func TestOrderOfRandomReferences(t *testing.T) {
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		kinds := []string{"Secret", "ConfigMap", "Service", "Pod", "PersistentVolumeClaim", "Thing"}
		n := 2 + random.IntN(30)
		var in []Object
		for i := range n {
			o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1",
				"kind":     kinds[random.IntN(len(kinds))],
				"metadata": map[string]any{"name": fmt.Sprint("o", i), "namespace": "n"}}}
			if i > 0 && random.IntN(2) == 0 { // only to earlier ones: no circle
				to := in[random.IntN(i)]
				set(o, map[string]any{"kind": to.GetKind(), "name": to.GetName(), "apiVersion": "v1"}, "spec", "ref")
			}
			in = append(in, o)
		}
		random.Shuffle(n, func(i, j int) { in[i], in[j] = in[j], in[i] })
		place := map[string]int{}
		for level, wave := range waves(in) {
			for _, o := range wave {
				if _, twice := place[o.GetName()]; twice {
					t.Fatalf("seed %d: %s comes twice", seed, o.GetName())
				}
				place[o.GetName()] = level
			}
		}
		if len(place) != n {
			t.Fatalf("seed %d: %d of %d come", seed, len(place), n)
		}
		for _, o := range in {
			if to := text(o, "spec", "ref", "name"); to != "" && place[to] >= place[o.GetName()] {
				t.Fatalf("seed %d: %s (%d) refers to %s (%d)", seed, o.GetName(), place[o.GetName()], to, place[to])
			}
		}
	}
}

func TestCirclesEnd(t *testing.T) {
	in := objects(t, `
apiVersion: v1
kind: Secret
metadata: {name: a, namespace: n}
spec: {ref: {kind: Pod, name: b}}
---
apiVersion: v1
kind: Pod
metadata: {name: b, namespace: n}
spec: {volumes: [{secret: {secretName: a}}], self: {kind: Pod, name: b}}`)
	if got := waves(in); len(got) != 2 {
		t.Errorf("%d waves", len(got))
	}
	loop := objects(t, `
apiVersion: v1
kind: Secret
metadata: {name: a, namespace: n, ownerReferences: [{apiVersion: v1, kind: Secret, name: a, uid: u, controller: true}]}`)
	if plan := Make(World{Namespaces: []string{"n"}, Objects: loop}, Options{}); len(plan.Waves) != 0 {
		t.Errorf("%q goes over", names(plan))
	}
}
