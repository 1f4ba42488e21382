package cloud_test

import (
	_ "embed"
	"encoding/json"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/theseus-cni/theseus/internal/mirror/cloud"
)

//go:embed testdata/inventory.yaml
var inventory []byte

const original, mirror = "blue.example.org", "green.example.org"

func read(t testing.TB, data []byte) *cloud.Inventory {
	t.Helper()
	i, err := cloud.ReadInventory(data)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// texts are a plan's actions and findings.
func texts(p *cloud.Plan) string {
	var all []string
	for _, a := range p.Actions {
		all = append(all, a.String())
	}
	for _, f := range p.Findings {
		kind := "note"
		if f.Blocks {
			kind = "block"
		}
		if f.Hint == "" {
			kind += " without a hint"
		}
		all = append(all, kind+" "+f.Subject+": "+f.Text)
	}
	return strings.Join(all, "\n")
}

// TestCompare: everything that the original has and the mirror lacks, once, and nothing of what is like the original's.
func TestCompare(t *testing.T) {
	p := cloud.Compare(read(t, inventory), original, mirror, nil)
	want := `create-issuer oidc.green.example.org
attach-policy nodes.green.example.org: arn:aws:iam::123456789012:policy/backup
put-inline-policy nodes.green.example.org: additional.nodes.green.example.org
put-inline-policy nodes.green.example.org: nodes.green.example.org
create-profile nodes.green.example.org
add-role-to-profile nodes.green.example.org: nodes.green.example.org
update-trust shop-payments
new-policy-version arn:aws:iam::123456789012:policy/assume-nodes
allow-ingress sg-gn: tcp 9100 with sg-monitoring
allow-ingress sg-gn: tcp 1-65535 with sg-gm
allow-egress sg-gn: everything with 0.0.0.0/0
allow-ingress sg-rds: tcp 5432 with sg-gn
allow-egress sg-proxy: tcp 8080 with sg-gn
block sg-bl: the mirror has no security group api-elb.green.example.org, which would match the original's api-elb.blue.example.org
block masters.blue.example.org: the mirror has no role masters.green.example.org
note nodes.green.example.org: its policy nodes.green.example.org has 1 statements that the original's lacks
block arn:aws:s3:::shop-uploads: its policy names resources of the original
note sg-rds: sg-rds of network vpc-blue would have to name sg-gn of network vpc-green
note sg-proxy: sg-proxy of network vpc-blue would have to name sg-gn of network vpc-green
block sg-cache: cache allows tcp 6379 with 10.1.0.0/24 by an address of the original's network`
	got := strings.Split(texts(p), "\n")
	for _, line := range strings.Split(want, "\n") {
		if !slices.ContainsFunc(got, func(have string) bool { return strings.HasPrefix(have, line) }) {
			t.Errorf("missing: %s", line)
		}
	}
	if len(got) != len(strings.Split(want, "\n")) {
		t.Errorf("the plan is\n%s", texts(p))
	}
	for _, a := range p.Actions {
		if a.Verb == cloud.Trust {
			for _, part := range []string{`oidc-provider/oidc.blue.example.org"`,
				`oidc-provider/oidc.green.example.org"`,
				`"oidc.green.example.org:sub":"system:serviceaccount:shop:pay"`, "legacy"} {
				if !strings.Contains(string(a.After), part) {
					t.Errorf("the trust lacks %s: %s", part, a.After)
				}
			}
		}
	}
}

// TestNothingTwice: once the plan's actions are done, comparing again finds nothing to do; undone, all of it again.
func TestNothingTwice(t *testing.T) {
	i := read(t, inventory)
	p := cloud.Compare(i, original, mirror, nil)
	before, err := json.Marshal(i)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range p.Steps(false) {
		do(i, a, false)
	}
	if again := cloud.Compare(i, original, mirror, nil); len(again.Actions) > 0 {
		t.Errorf("there is more to do:\n%s", texts(again))
	}
	for _, a := range p.Steps(true) {
		do(i, a, true)
	}
	after, err := json.Marshal(i)
	if err != nil {
		t.Fatal(err)
	}
	if string(before) != string(after) {
		t.Errorf("after the way back:\n%s\nbefore:\n%s", after, before)
	}
}

// do does an action, or takes it back, in an inventory.
func do(i *cloud.Inventory, a cloud.Action, back bool) {
	set := func(list *[]string, value string) {
		if back {
			*list = slices.DeleteFunc(*list, func(one string) bool { return one == value })
		} else {
			*list = append(*list, value)
		}
	}
	document := a.After
	if back {
		document = a.Before
	}
	for n := range i.Roles {
		switch r := &i.Roles[n]; {
		case r.Name != a.Subject:
		case a.Verb == cloud.AttachPolicy:
			set(&r.Attached, a.Name)
		case a.Verb == cloud.Trust:
			r.Trust = document
		case a.Verb == cloud.PutPolicy && document == "":
			delete(r.Inline, a.Name)
		case a.Verb == cloud.PutPolicy:
			r.Inline[a.Name] = document
		}
	}
	for n := range i.Policies {
		if i.Policies[n].ARN == a.Subject {
			i.Policies[n].Document = document
		}
	}
	for n := range i.Profiles {
		if i.Profiles[n].Name == a.Subject && a.Verb == cloud.AddToProfile {
			set(&i.Profiles[n].Roles, a.Name)
		}
	}
	for n := range i.Groups {
		rules := map[cloud.Verb]*[]cloud.Rule{cloud.AllowIn: &i.Groups[n].In, cloud.AllowOut: &i.Groups[n].Out}[a.Verb]
		switch {
		case i.Groups[n].ID != a.Subject || rules == nil:
		case back:
			*rules = slices.DeleteFunc(*rules, func(r cloud.Rule) bool { return r == *a.Rule })
		default:
			*rules = append(*rules, *a.Rule)
		}
	}
	switch {
	case a.Verb == cloud.CreateProfile && back:
		i.Profiles = slices.DeleteFunc(i.Profiles, func(p cloud.Profile) bool { return p.Name == a.Subject })
	case a.Verb == cloud.CreateProfile:
		i.Profiles = append(i.Profiles, cloud.Profile{Name: a.Subject})
	case a.Verb == cloud.CreateIssuer && back:
		i.Issuers = slices.DeleteFunc(i.Issuers, func(o cloud.Issuer) bool { return o.URL == a.Subject })
	case a.Verb == cloud.CreateIssuer:
		i.Issuers = append(i.Issuers, *a.Issuer)
	}
}

// TestNames goes by whole parts of names, and knows a mirror whose name has the original's in it.
func TestNames(t *testing.T) {
	role := func(name string) cloud.Role { return cloud.Role{Name: name} }
	for what, c := range map[string]struct {
		original, mirror string
		roles            []cloud.Role
		pairs            []cloud.Pair
		want             string
	}{
		"a part of another name": {"blue.org", "green.org",
			[]cloud.Role{role("nodes.darkblue.org"), role("nodes.blue.org.evil.io"), role("x-blue.org")}, nil,
			"block blue.org: no role and no security group has its name"},
		"the mirror's has it": {"blue.org", "mirror.blue.org",
			[]cloud.Role{role("nodes.blue.org"), role("nodes.mirror.blue.org")}, nil, ""},
		"by hand": {"blue.org", "green.org", []cloud.Role{role("eks-old"), role("eks-new")},
			[]cloud.Pair{{Old: "eks-old", New: "eks-new"}}, ""},
		"by its tag": {"blue.org", "green.org", []cloud.Role{role("nodes.blue.org"), role("nodes.green.org"),
			{Name: "odd", Tags: map[string]string{"KubernetesCluster": "blue.org"}}}, nil,
			"block odd: its tag says that it belongs to the original"},
	} {
		p := cloud.Compare(&cloud.Inventory{Roles: c.roles}, c.original, c.mirror, c.pairs)
		if got := texts(p); c.want == "" && got != "" || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

// TestLines: a shell reads each line as one command with the words that were meant, and back is the mirror of there.
func TestLines(t *testing.T) {
	p := cloud.Compare(read(t, inventory), original, mirror, nil)
	for _, back := range []bool{false, true} {
		script := "aws() { printf '%s\\n' \"$2\"; }\n" + strings.Join(cloud.Lines(p, back), "\n")
		out, err := exec.Command("sh", "-c", script).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		verbs := strings.Fields(string(out))
		if len(verbs) != len(p.Actions) {
			t.Errorf("%d commands for %d actions: %s", len(verbs), len(p.Actions), verbs)
		}
		if first := map[bool]string{false: "create-open-id-connect-provider",
			true: "revoke-security-group-egress"}[back]; verbs[0] != first {
			t.Errorf("the first is %s, want %s", verbs[0], first)
		}
	}
	odd := &cloud.Plan{Actions: []cloud.Action{{Verb: cloud.PutPolicy, Subject: "it's; rm -rf /", Name: "$(x)",
		After: `{"a":"'${aws:username}'"}`, Why: "x\ny"}}}
	out, err := exec.Command("sh", "-c", "aws() { printf '%s|' \"$@\"; }\n"+
		strings.Join(cloud.Lines(odd, false), "\n")).CombinedOutput()
	if want := `iam|put-role-policy|--role-name|it's; rm -rf /|--policy-name|$(x)|--policy-document|{"a":"'${aws:username}'"}|`; err != nil ||
		string(out) != want {
		t.Errorf("%v: %s, want %s", err, out, want)
	}
}

// TestTerraform: texts are texts, whatever is in them.
func TestTerraform(t *testing.T) {
	text := cloud.Terraform(cloud.Compare(read(t, inventory), original, mirror, nil))
	for _, part := range []string{
		`resource "aws_iam_role_policy_attachment" "mirror_2" {` + "\n" + `  role = "nodes.green.example.org"` + "\n" +
			`  policy_arn = "arn:aws:iam::123456789012:policy/backup"`,
		`$${aws:username}`, `url = "https://oidc.green.example.org"`, `referenced_security_group_id = "sg-gn"`,
		`cidr_ipv4 = "0.0.0.0/0"`,
		"# assume_role_policy of role shop-payments becomes, where it is written:",
	} {
		if !strings.Contains(text, part) {
			t.Errorf("%s is not in\n%s", part, text)
		}
	}
	if strings.Contains(strings.ReplaceAll(text, "$${", ""), `\"${`) {
		t.Error("an expression of Terraform's is in it")
	}
}

// TestBadInput: all that is wrong with an inventory or a plan is said.
func TestBadInput(t *testing.T) {
	const head = "apiVersion: theseus.dev/v1alpha1\nkind: CloudInventory\n"
	for text, want := range map[string]string{
		"":                                     `want "theseus.dev/v1alpha1", "CloudInventory"`,
		head + "rolls: []":                     `unknown field "rolls"`,
		head + "roles: [{name: a, trust: no}]": "not a JSON object",
		head + "roles: [{name: a, trust: '{} {}'}]": "more than one",
		head + "roles: [{name: a}, {name: a}, {}]": "role a is " +
			"there twice\na role has no name",
		head + "securityGroups: [{id: a, ingress: [{protocol: tcp, from: 1, to: 2}]}]": "names 0 peers",
		head +
			"securityGroups: [{id: a, ingress: [{protocol: tcp, from: 1, to: 70000, group: b}]}]": "ports 1 to 70000",
		head + "securityGroups: [{id: a, egress: [{protocol: tcp, cidr: x}]}]": "x",
		head + "vpcs: [{id: v, cidrs: [10.0.0.0]}]":                            "10.0.0.0",
	} {
		if _, err := cloud.ReadInventory([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	data, err := cloud.WritePlan(cloud.Compare(read(t, inventory), original, mirror, nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cloud.ReadPlan(data); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"x", "{}", strings.Replace(string(data), "sg-gn", "sg-xx", 1), string(inventory)} {
		if _, err := cloud.ReadPlan([]byte(bad)); err == nil {
			t.Errorf("%.40s was taken for a plan", bad)
		}
	}
}

// FuzzInventory: whatever a file says, nothing panics, and what is done once is not to do again.
func FuzzInventory(f *testing.F) {
	f.Add(inventory)
	f.Add([]byte("apiVersion: theseus.dev/v1alpha1\nkind: CloudInventory\nroles: [{name: nodes.blue.example.org, " +
		"trust: {Statement: {Action: [1, {}]}}}, {name: nodes.green.example.org}]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		i, err := cloud.ReadInventory(data)
		if err != nil {
			return
		}
		p := cloud.Compare(i, original, mirror, nil)
		cloud.Lines(p, true)
		cloud.Terraform(p)
		written, err := cloud.WritePlan(p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := cloud.ReadPlan(written); err != nil {
			t.Fatalf("%v:\n%s", err, written)
		}
	})
}
