package audit

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// log is in the format of kube-apiserver, without the fields that are not read.
const log = `{"kind":"Event","stage":"ResponseComplete","requestURI":"/api/v1/nodes?limit=500","verb":"list","user":{"username":"op"},"objectRef":{"resource":"nodes","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":200}}
{"kind":"Event","requestURI":"/apis/apps/v1/namespaces/kube-system/daemonsets/a","verb":"patch","user":{"username":"op"},"objectRef":{"resource":"daemonsets","namespace":"kube-system","name":"a","apiGroup":"apps","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":201}}
{"kind":"Event","requestURI":"/apis/apps/v1/namespaces/kube-system/deployments/a","verb":"patch","user":{"username":"op"},"objectRef":{"resource":"deployments","namespace":"kube-system","name":"a","apiGroup":"apps","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":200}}
{"kind":"Event","requestURI":"/api/v1/namespaces/default/pods/a/log","verb":"get","user":{"username":"op"},"objectRef":{"resource":"pods","namespace":"default","name":"a","apiVersion":"v1","subresource":"log"},"responseStatus":{"metadata":{},"code":403}}
{"kind":"Event","requestURI":"/api/v1/secrets","verb":"list","user":{"username":"op"},"objectRef":{"resource":"secrets","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":403},"annotations":{"authorization.k8s.io/decision":"forbid","authorization.k8s.io/reason":"RBAC: clusterrole.rbac.authorization.k8s.io \"op\" not found"}}
{"kind":"Event","requestURI":"/healthz","verb":"get","user":{"username":"op"},"responseStatus":{"metadata":{},"code":403}}
`

func events(t *testing.T) []Event {
	t.Helper()
	all, err := Read(strings.NewReader(log))
	if err != nil || len(all) != 6 {
		t.Fatalf("%v %v", all, err)
	}
	return all
}

func but1(pattern string, sometimes bool) []Exception {
	return []Exception{{Rights: regexp.MustCompile(pattern), Why: "so it is", Sometimes: sometimes}}
}

func TestRefused(t *testing.T) {
	log := "get pods/log in default was refused"
	health := "get /healthz was refused"
	for _, test := range []struct {
		rights []Right
		known  []Exception
		want   []string
	}{
		{nil, nil, []string{log, health}},
		{nil, but1(`pods/log`, false), []string{health}},
		{nil, but1(`^get `, false), nil},
		{nil, but1(`secrets`, true), []string{log, health}},
		{nil, but1(`secrets`, false), []string{log, health, "no right like secrets was refused any more: so it is"}},
		{[]Right{{"get", "", "pods/log", "default"}}, nil, []string{health}}, // refused early
		{[]Right{{"get", "", "pods/log", ""}}, nil, []string{health}},
		{[]Right{{"get", "", "pods/log", "other"}, {"get", "", "pods", ""}}, nil, []string{log, health}},
	} {
		if got := Refused(events(t), test.rights, test.known); !slices.Equal(got, test.want) {
			t.Errorf("%v: %q", test.known, got)
		}
	}
}

// TestGranted: a patch may be a server-side apply, which also asks to create.
func TestGranted(t *testing.T) {
	patch, create := Right{"patch", "apps", "daemonsets", "n"}, Right{"create", "apps", "daemonsets", ""}
	for _, test := range []struct {
		rights []Right
		want   bool
	}{{[]Right{patch, create}, true}, {[]Right{patch}, false}, {[]Right{create}, false}} {
		if got := granted(patch, test.rights); got != test.want {
			t.Errorf("%v: %v", test.rights, got)
		}
	}
}

// TestUnused: a right is used by a request in its namespace, one for all namespaces by a request in any, and none by a
// request that was refused. A server-side apply needs create only where it creates.
func TestUnused(t *testing.T) {
	for _, test := range []struct {
		right Right
		used  bool
	}{
		{Right{"list", "", "nodes", ""}, true},
		{Right{"watch", "", "nodes", ""}, false},
		{Right{"list", "metrics.k8s.io", "nodes", ""}, false},
		{Right{"list", "", "nodes", "default"}, false},
		{Right{"patch", "apps", "daemonsets", "kube-system"}, true},
		{Right{"create", "apps", "daemonsets", "kube-system"}, true},
		{Right{"create", "apps", "daemonsets", ""}, true},
		{Right{"create", "apps", "daemonsets", "default"}, false},
		{Right{"patch", "apps", "deployments", ""}, true},
		{Right{"create", "apps", "deployments", "kube-system"}, false},
		{Right{"get", "", "pods/log", ""}, false},
		{Right{"get", "", "pods", ""}, false},
		{Right{"list", "", "secrets", ""}, false},
	} {
		want := []string{test.right.String() + " is granted, and was not used"}
		if test.used {
			want = nil
		}
		if got := Unused(events(t), []Right{test.right}, nil); !slices.Equal(got, want) {
			t.Errorf("%s: %q", test.right, got)
		}
		if got := Unused(events(t), []Right{test.right}, but1(".", true)); len(got) > 0 {
			t.Errorf("%s: %q", test.right, got)
		}
	}
	stale := Unused(events(t), []Right{{"list", "", "nodes", ""}}, but1("nodes", false))
	if len(stale) != 1 || !strings.Contains(stale[0], "so it is") {
		t.Errorf("an exception for a right that is used: %q", stale)
	}
}

func TestRights(t *testing.T) {
	var roles Roles
	if err := json.Unmarshal([]byte(`{"items":[{"metadata":{"name":"a"},"rules":[
		{"apiGroups":["x.io"],"resources":["*"],"verbs":["list"]},{"apiGroups":["y.io"],"resources":["*"],"verbs":["list"]},
		{"apiGroups":[""],"resources":["pods","pods/log"],"verbs":["get"]},{"apiGroups":["*"],"resources":["*/scale"],"verbs":["get"]}]},
		{"metadata":{"name":"b","namespace":"n"},"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get","list"]}]}]}`),
		&roles); err != nil {
		t.Fatal(err)
	}
	served := func(group, verb string) ([]string, error) {
		return map[string][]string{"x.io list": {"as", "bs"}}[group+" "+verb], nil
	}
	got, err := roles.Rights(served)
	want := []Right{{"get", "", "pods", ""}, {"get", "", "pods", "n"}, {"list", "", "pods", "n"},
		{"get", "", "pods/log", ""}, {"get", "*", "*/scale", ""},
		{"list", "x.io", "as", ""}, {"list", "x.io", "bs", ""}, {"list", "y.io", "*", ""}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v: %v", got, err)
	}
	roles.Items[0].Rules[0].Verbs = []string{"*"}
	if _, err := roles.Rights(served); err == nil {
		t.Error("a rule for all verbs has no error")
	}
	roles.Items[0].Rules[0].Verbs, roles.Items[0].Rules[0].APIGroups = []string{"list"}, []string{"*"}
	if _, err := roles.Rights(served); err == nil {
		t.Error("a rule for all groups has no error")
	}
}
