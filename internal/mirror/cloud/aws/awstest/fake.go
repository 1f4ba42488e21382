// Package awstest has a FAKE of Amazon's IAM and EC2 for tests, as none that is Amazon's own can be had: over HTTP,
// with the calls that package aws makes, lists in pages of two, policies URL-encoded, and the errors that are
// documented for what is not there or there already. It does not check rights or signatures. Every answer says that it
// is a fake.
package awstest

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/theseus-cni/theseus/internal/mirror/cloud"
)

// Fake is an account in a region.
type Fake struct {
	URL string
	// Fail, when set, says with which code a call fails before anything is done; empty for none.
	Fail func(action string) string

	lock sync.Mutex
	i    *cloud.Inventory
	// writes are the calls that changed something.
	writes []string
}

const pageSize = 2

// Inventory reads one from a file.
func Inventory(t testing.TB, file string) *cloud.Inventory {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	i, err := cloud.ReadInventory(data)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// Start serves an inventory until the test ends, and takes the inventory over.
func Start(t testing.TB, i *cloud.Inventory) *Fake {
	t.Helper()
	f := &Fake{i: i}
	server := httptest.NewServer(f)
	f.URL = server.URL
	t.Cleanup(server.Close)
	t.Setenv("AWS_ACCESS_KEY_ID", "fake")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "fake")
	t.Setenv("AWS_REGION", "us-east-1")
	t.Setenv("AWS_MAX_ATTEMPTS", "1")
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	return f
}

// Change lets a test change or read the objects, as another client would.
func (f *Fake) Change(change func(*cloud.Inventory)) {
	f.lock.Lock()
	defer f.lock.Unlock()
	change(f.i)
}

// Attach gives a role a policy, as another client would.
func (f *Fake) Attach(role, policy string) {
	f.Change(func(i *cloud.Inventory) {
		for n := range i.Roles {
			if i.Roles[n].Name == role {
				i.Roles[n].Attached = append(i.Roles[n].Attached, policy)
			}
		}
	})
}

// Writes are the calls that changed something so far.
func (f *Fake) Writes() []string {
	f.lock.Lock()
	defer f.lock.Unlock()
	return slices.Clone(f.writes)
}

// refusal is an error of the API.
type refusal struct {
	status     int
	code, text string
}

func missing(what, name string) *refusal {
	return &refusal{http.StatusNotFound, "NoSuchEntity", what + " " + name + " cannot be found"}
}

// ServeHTTP implements http.Handler.
func (f *Fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.lock.Lock()
	defer f.lock.Unlock()
	w.Header().Set("Server", "theseus-fake-of-aws (this is not Amazon)")
	w.Header().Set("Content-Type", "text/xml")
	if err := r.ParseForm(); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	action := r.Form.Get("Action")
	body, wrong := "", (*refusal)(nil)
	if f.Fail != nil && f.Fail(action) != "" {
		wrong = &refusal{http.StatusForbidden, f.Fail(action), "the fake was told to refuse"}
	} else {
		body, wrong = f.call(action, r.Form)
	}
	if wrong != nil {
		w.WriteHeader(wrong.status)
		text := el("Code", wrong.code) + el("Message", wrong.text)
		if strings.Contains(action, "SecurityGroup") || strings.Contains(action, "Vpcs") {
			fmt.Fprint(w, raw("Response", raw("Errors", raw("Error", text))+el("RequestID", "fake")))
		} else {
			fmt.Fprint(w, raw("ErrorResponse", raw("Error", text)))
		}
		return
	}
	if !strings.HasPrefix(action, "List") && !strings.HasPrefix(action, "Get") &&
		!strings.HasPrefix(action, "Describe") {
		f.writes = append(f.writes, action)
	}
	if body == "" {
		body = raw(action+"Result", "")
	}
	fmt.Fprint(w, raw(action+"Response", body))
}

func el(name, text string) string {
	var out strings.Builder
	xml.EscapeText(&out, []byte(text)) //nolint:errcheck // a strings.Builder takes all
	return raw(name, out.String())
}

func raw(name, body string) string { return "<" + name + ">" + body + "</" + name + ">" }

// page returns the items of the page that a form asks for, and the mark of the next one.
func page(items []string, mark string) (string, string) {
	from, _ := strconv.Atoi(mark)
	from = min(from, len(items))
	to := min(from+pageSize, len(items))
	next := ""
	if to < len(items) {
		next = strconv.Itoa(to)
	}
	return strings.Join(items[from:to], ""), next
}

// listed is the answer of a list of IAM.
func listed(action, field string, items []string, form url.Values) string {
	body, next := page(items, form.Get("Marker"))
	return raw(action+"Result", raw(field, body)+el("IsTruncated", strconv.FormatBool(next != ""))+el("Marker", next))
}

// call does one call. The names of fields are those of the API's reference.
func (f *Fake) call(action string, form url.Values) (string, *refusal) {
	switch action {
	case "ListRoles", "ListInstanceProfiles", "ListPolicies", "ListPolicyVersions", "ListOpenIDConnectProviders",
		"GetOpenIDConnectProvider", "CreateOpenIDConnectProvider", "DeleteOpenIDConnectProvider", "GetPolicy",
		"GetPolicyVersion", "CreatePolicyVersion":
		return f.account(action, form)
	case "GetInstanceProfile", "CreateInstanceProfile", "DeleteInstanceProfile", "AddRoleToInstanceProfile",
		"RemoveRoleFromInstanceProfile":
		return f.profile(action, form)
	}
	if strings.Contains(action, "SecurityGroup") || action == "DescribeVpcs" {
		return f.network(action, form)
	}
	return f.role(action, form)
}

func (f *Fake) account(action string, form url.Values) (string, *refusal) {
	var items []string
	issuer := slices.IndexFunc(f.i.Issuers, func(i cloud.Issuer) bool {
		return i.ARN == form.Get("OpenIDConnectProviderArn")
	})
	policy := slices.IndexFunc(f.i.Policies, func(p cloud.Policy) bool { return p.ARN == form.Get("PolicyArn") })
	switch {
	case strings.Contains(action, "OpenIDConnectProvider") && issuer < 0 && !strings.HasPrefix(action, "List") &&
		!strings.HasPrefix(action, "Create"):
		return "", missing("OpenIDConnect Provider", form.Get("OpenIDConnectProviderArn"))
	case strings.Contains(action, "Policy") && policy < 0 && action != "ListPolicies":
		return "", missing("policy", form.Get("PolicyArn"))
	}
	switch action {
	case "ListRoles":
		for _, r := range f.i.Roles {
			items = append(items, raw("member", roleOf(r, false)))
		}
		return listed(action, "Roles", items, form), nil
	case "ListInstanceProfiles":
		for _, p := range f.i.Profiles {
			items = append(items, raw("member", profileOf(p)))
		}
		return listed(action, "InstanceProfiles", items, form), nil
	case "ListPolicies":
		for _, p := range f.i.Policies {
			items = append(items, raw("member", el("Arn", p.ARN)+el("DefaultVersionId", "v"+strconv.Itoa(p.Versions))))
		}
		return listed(action, "Policies", items, form), nil
	case "ListPolicyVersions":
		for n := range f.i.Policies[policy].Versions {
			items = append(items, raw("member", el("VersionId", "v"+strconv.Itoa(n+1))))
		}
		return raw(action+"Result", raw("Versions", strings.Join(items, ""))+el("IsTruncated", "false")), nil
	case "GetPolicy":
		p := f.i.Policies[policy]
		return raw(action+"Result",
			raw("Policy", el("Arn", p.ARN)+el("DefaultVersionId", "v"+strconv.Itoa(p.Versions)))), nil
	case "GetPolicyVersion":
		return raw(action+"Result",
			raw("PolicyVersion", el("Document", url.PathEscape(string(f.i.Policies[policy].Document))))), nil
	case "CreatePolicyVersion":
		p := &f.i.Policies[policy]
		if p.Versions >= 5 {
			return "", &refusal{http.StatusConflict, "LimitExceeded", "a managed policy can have up to 5 versions"}
		}
		p.Document, p.Versions = cloud.Document(form.Get("PolicyDocument")), p.Versions+1
		return "", nil
	case "ListOpenIDConnectProviders":
		for _, i := range f.i.Issuers {
			items = append(items, raw("member", el("Arn", i.ARN)))
		}
		return raw(action+"Result", raw("OpenIDConnectProviderList", strings.Join(items, ""))), nil
	case "GetOpenIDConnectProvider":
		i := f.i.Issuers[issuer]
		return raw(action+"Result", el("Url", i.URL)+raw("ClientIDList", members(i.Clients))+
			raw("ThumbprintList", members(i.Thumbprints))), nil
	case "CreateOpenIDConnectProvider":
		name := strings.TrimPrefix(form.Get("Url"), "https://")
		if slices.ContainsFunc(f.i.Issuers, func(i cloud.Issuer) bool { return i.URL == name }) {
			return "", &refusal{http.StatusConflict, "EntityAlreadyExists", "provider exists"}
		}
		f.i.Issuers = append(f.i.Issuers,
			cloud.Issuer{ARN: "arn:aws:iam::123456789012:oidc-provider/" + name, URL: name,
				Clients: many(form, "ClientIDList.member."), Thumbprints: many(form, "ThumbprintList.member.")})
		return raw(action+"Result",
			el("OpenIDConnectProviderArn", "arn:aws:iam::123456789012:oidc-provider/"+name)), nil
	}
	f.i.Issuers = slices.Delete(f.i.Issuers, issuer, issuer+1)
	return "", nil
}

func members(values []string) string {
	var out strings.Builder
	for _, value := range values {
		out.WriteString(el("member", value))
	}
	return out.String()
}

func many(form url.Values, prefix string) []string {
	var values []string
	for n := 1; form.Has(prefix + strconv.Itoa(n)); n++ {
		values = append(values, form.Get(prefix+strconv.Itoa(n)))
	}
	return values
}

func roleOf(r cloud.Role, whole bool) string {
	text := el("RoleName", r.Name) + el("Arn", r.ARN) + el("RoleId", r.ID) + el("Path", "/")
	if whole {
		text += el("AssumeRolePolicyDocument", url.PathEscape(string(r.Trust)))
		for key, value := range r.Tags {
			text += raw("Tags", raw("member", el("Key", key)+el("Value", value)))
		}
		if r.Boundary != "" {
			text += raw("PermissionsBoundary", el("PermissionsBoundaryArn", r.Boundary))
		}
	}
	return text
}

func profileOf(p cloud.Profile) string {
	var roles strings.Builder
	for _, role := range p.Roles {
		roles.WriteString(raw("member", el("RoleName", role)))
	}
	return el("InstanceProfileName", p.Name) + raw("Roles", roles.String())
}

func (f *Fake) role(action string, form url.Values) (string, *refusal) {
	at := slices.IndexFunc(f.i.Roles, func(r cloud.Role) bool { return r.Name == form.Get("RoleName") })
	if at < 0 {
		return "", missing("role", form.Get("RoleName"))
	}
	r := &f.i.Roles[at]
	name, text := form.Get("PolicyName"), cloud.Document(form.Get("PolicyDocument"))
	var items []string
	switch action {
	case "GetRole":
		return raw(action+"Result", raw("Role", roleOf(*r, true))), nil
	case "ListRolePolicies":
		for policy := range r.Inline {
			items = append(items, el("member", policy))
		}
		slices.Sort(items)
		return listed(action, "PolicyNames", items, form), nil
	case "ListAttachedRolePolicies":
		for _, arn := range r.Attached {
			items = append(items, raw("member", el("PolicyArn", arn)))
		}
		return listed(action, "AttachedPolicies", items, form), nil
	case "GetRolePolicy", "DeleteRolePolicy":
		document, ok := r.Inline[name]
		if !ok {
			return "", missing("role policy", name)
		}
		if action == "DeleteRolePolicy" {
			delete(r.Inline, name)
			return "", nil
		}
		return raw(action+"Result", el("PolicyName", name)+el("RoleName", r.Name)+
			el("PolicyDocument", url.PathEscape(string(document)))), nil
	case "PutRolePolicy":
		if r.Inline == nil {
			r.Inline = map[string]cloud.Document{}
		}
		r.Inline[name] = text
		return "", nil
	case "UpdateAssumeRolePolicy":
		r.Trust = text
		return "", nil
	case "AttachRolePolicy":
		r.Attached = append(r.Attached, form.Get("PolicyArn"))
		return "", nil
	case "DetachRolePolicy":
		r.Attached = slices.DeleteFunc(r.Attached, func(arn string) bool { return arn == form.Get("PolicyArn") })
		return "", nil
	}
	return "", &refusal{http.StatusBadRequest, "InvalidAction", "the fake does not know " + action}
}

func (f *Fake) profile(action string, form url.Values) (string, *refusal) {
	name, role := form.Get("InstanceProfileName"), form.Get("RoleName")
	at := slices.IndexFunc(f.i.Profiles, func(p cloud.Profile) bool { return p.Name == name })
	if at < 0 && action != "CreateInstanceProfile" {
		return "", missing("Instance Profile", name)
	}
	switch action {
	case "GetInstanceProfile":
		return raw(action+"Result", raw("InstanceProfile", profileOf(f.i.Profiles[at]))), nil
	case "CreateInstanceProfile":
		f.i.Profiles = append(f.i.Profiles, cloud.Profile{Name: name})
		return raw(action+"Result", raw("InstanceProfile", el("InstanceProfileName", name))), nil
	case "DeleteInstanceProfile":
		if len(f.i.Profiles[at].Roles) > 0 {
			return "", &refusal{http.StatusConflict, "DeleteConflict", "must remove roles first"}
		}
		f.i.Profiles = slices.Delete(f.i.Profiles, at, at+1)
		return "", nil
	case "AddRoleToInstanceProfile":
		if len(f.i.Profiles[at].Roles) > 0 {
			return "", &refusal{http.StatusConflict, "LimitExceeded", "an instance profile has one role"}
		}
		f.i.Profiles[at].Roles = []string{role}
		return "", nil
	}
	f.i.Profiles[at].Roles = slices.DeleteFunc(f.i.Profiles[at].Roles, func(one string) bool { return one == role })
	return "", nil
}

func (f *Fake) network(action string, form url.Values) (string, *refusal) {
	var items []string
	switch action {
	case "DescribeVpcs":
		for _, v := range f.i.VPCs {
			items = append(items, raw("item", el("vpcId", v.ID)+el("cidrBlock", v.CIDRs[0])))
		}
		body, next := page(items, form.Get("NextToken"))
		return raw("vpcSet", body) + el("nextToken", next), nil
	case "DescribeSecurityGroups":
		wanted := many(form, "GroupId.")
		for _, g := range f.i.Groups {
			if len(wanted) == 0 || slices.Contains(wanted, g.ID) {
				items = append(items, raw("item", el("groupId", g.ID)+el("groupName", g.Name)+el("vpcId", g.VPC)+
					raw("ipPermissions", permissions(g.In))+raw("ipPermissionsEgress", permissions(g.Out))))
			}
		}
		body, next := page(items, form.Get("NextToken"))
		return raw("securityGroupInfo", body) + el("nextToken", next), nil
	}
	at := slices.IndexFunc(f.i.Groups, func(g cloud.Group) bool { return g.ID == form.Get("GroupId") })
	if at < 0 {
		return "", &refusal{http.StatusBadRequest, "InvalidGroup.NotFound", "the security group does not exist"}
	}
	list := &f.i.Groups[at].In
	if strings.HasSuffix(action, "Egress") {
		list = &f.i.Groups[at].Out
	}
	rule := ruleOf(form)
	there := slices.ContainsFunc(*list, rule.Same)
	switch {
	case strings.HasPrefix(action, "Revoke") && there:
		*list = slices.DeleteFunc(*list, rule.Same)
	case strings.HasPrefix(action, "Revoke"):
		return "", &refusal{http.StatusBadRequest, "InvalidPermission.NotFound", "the rule does not exist"}
	case there:
		return "", &refusal{http.StatusBadRequest, "InvalidPermission.Duplicate", "the rule exists"}
	default:
		*list = append(*list, rule)
	}
	return el("return", "true"), nil
}

func permissions(rules []cloud.Rule) string {
	var out strings.Builder
	for _, r := range rules {
		text := el("ipProtocol", r.Protocol)
		if r.Protocol != "-1" {
			text += el("fromPort", strconv.Itoa(r.From)) + el("toPort", strconv.Itoa(r.To))
		}
		about := ""
		if r.Text != "" {
			about = el("description", r.Text)
		}
		switch {
		case r.Group != "":
			text += raw("groups", raw("item", el("groupId", r.Group)+about))
		case r.PrefixList != "":
			text += raw("prefixListIds", raw("item", el("prefixListId", r.PrefixList)+about))
		case strings.Contains(r.CIDR, ":"):
			text += raw("ipv6Ranges", raw("item", el("cidrIpv6", r.CIDR)+about))
		default:
			text += raw("ipRanges", raw("item", el("cidrIp", r.CIDR)+about))
		}
		out.WriteString(raw("item", text))
	}
	return out.String()
}

// ruleOf reads the one rule of a call.
func ruleOf(form url.Values) cloud.Rule {
	const p = "IpPermissions.1."
	rule := cloud.Rule{Protocol: form.Get(p + "IpProtocol"), From: -1, To: -1}
	if form.Has(p + "FromPort") {
		rule.From, _ = strconv.Atoi(form.Get(p + "FromPort"))
		rule.To, _ = strconv.Atoi(form.Get(p + "ToPort"))
	}
	for list, set := range map[string]func(string){
		"IpRanges.1.CidrIp":            func(v string) { rule.CIDR = v },
		"Ipv6Ranges.1.CidrIpv6":        func(v string) { rule.CIDR = v },
		"Groups.1.GroupId":             func(v string) { rule.Group = v },
		"PrefixListIds.1.PrefixListId": func(v string) { rule.PrefixList = v },
	} {
		if value := form.Get(p + list); value != "" {
			set(value)
			rule.Text = form.Get(p + strings.Split(list, ".")[0] + ".1.Description")
		}
	}
	return rule
}
