// Package cloud compares the permissions of a cluster and its mirror in AWS: IAM roles with their policies and trust,
// instance profiles, OIDC providers, security groups, and other resources that refer to the original's. It makes a plan
// with the permissions that the mirror lacks, and formats it as aws commands or as Terraform. It is pure: it makes no
// API calls.
package cloud

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"sort"
	"strings"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/safeio/bounded"
)

// InventoryKind is the kind of a file that holds an Inventory.
const InventoryKind = "CloudInventory"

// Inventory is the state of an account and region, as far as it was read.
type Inventory struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Account    string `json:"account,omitempty"`
	Roles      []Role `json:"roles,omitempty"`
	// Profiles are instance profiles.
	Profiles []Profile `json:"profiles,omitempty"`
	// Policies are the managed policies of the account's own.
	Policies []Policy `json:"policies,omitempty"`
	// Issuers are the OIDC providers.
	Issuers []Issuer `json:"issuers,omitempty"`
	Groups  []Group  `json:"securityGroups,omitempty"`
	VPCs    []VPC    `json:"vpcs,omitempty"`
	// ResourcePolicies are the policies of buckets, keys, queues and similar resources.
	ResourcePolicies []ResourcePolicy `json:"resourcePolicies,omitempty"`
	// Missing lists what was not read, and why.
	Missing []string `json:"missing,omitempty"`
}

// Role is an IAM role.
type Role struct {
	Name  string   `json:"name"`
	ARN   string   `json:"arn,omitempty"`
	ID    string   `json:"id,omitempty"` // as trust policies and KMS grants may name it: AROA...
	Trust Document `json:"trust,omitempty"`
	// Inline are its own policies by name, Attached the ARNs of managed ones.
	Inline   map[string]Document `json:"inline,omitempty"`
	Attached []string            `json:"attached,omitempty"`
	Boundary string              `json:"boundary,omitempty"`
	Tags     map[string]string   `json:"tags,omitempty"`
}

// Profile is an instance profile.
type Profile struct {
	Name  string   `json:"name"`
	Roles []string `json:"roles,omitempty"`
}

// Policy is a managed policy in its default version.
type Policy struct {
	ARN      string   `json:"arn"`
	Document Document `json:"document"`
	Versions int      `json:"versions,omitempty"`
}

// Issuer is an OIDC provider; its URL has no scheme, as IAM gives it.
type Issuer struct {
	ARN         string   `json:"arn"`
	URL         string   `json:"url"`
	Clients     []string `json:"clients,omitempty"`
	Thumbprints []string `json:"thumbprints,omitempty"`
}

// Group is a security group.
type Group struct {
	ID   string            `json:"id"`
	Name string            `json:"name"`
	VPC  string            `json:"vpc,omitempty"`
	Tags map[string]string `json:"tags,omitempty"`
	In   []Rule            `json:"ingress,omitempty"`
	Out  []Rule            `json:"egress,omitempty"`
}

// Rule is one permission for one peer: exactly one of CIDR, Group and PrefixList is set.
type Rule struct {
	// Protocol is tcp, udp, icmp, a number, or -1 for all of them.
	Protocol string `json:"protocol"`
	// From and To are ports; -1, or both 0 with protocol -1, for all.
	From       int    `json:"from"`
	To         int    `json:"to"`
	CIDR       string `json:"cidr,omitempty"`
	Group      string `json:"group,omitempty"`
	PrefixList string `json:"prefixList,omitempty"`
	Text       string `json:"description,omitempty"`
}

// VPC is a network.
type VPC struct {
	ID    string   `json:"id"`
	CIDRs []string `json:"cidrs"`
}

// ResourcePolicy is the policy of a resource.
type ResourcePolicy struct {
	Resource string   `json:"resource"` // its ARN
	Document Document `json:"document"`
}

// Document is a policy: a JSON object with its keys sorted. In files it may be an object, or JSON in a text.
type Document string

// ParseDocument reads a policy, which IAM gives URL-encoded.
func ParseDocument(text string) (Document, error) {
	if strings.HasPrefix(text, "%7B") {
		plain, err := url.PathUnescape(text)
		if err != nil {
			return "", err
		}
		text = plain
	}
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var object map[string]any
	if err := decoder.Decode(&object); err != nil {
		return "", fmt.Errorf("a policy is not a JSON object: %w", err)
	}
	if decoder.More() {
		return "", errors.New("a policy has more than one JSON object")
	}
	return documentOf(object), nil
}

func documentOf(object map[string]any) Document {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.Encode(object) //nolint:errcheck // it was JSON
	return Document(bytes.TrimSpace(out.Bytes()))
}

func (d Document) object() map[string]any {
	decoder := json.NewDecoder(strings.NewReader(string(d)))
	decoder.UseNumber()
	var object map[string]any
	decoder.Decode(&object) //nolint:errcheck // it is JSON
	return object
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *Document) UnmarshalJSON(data []byte) (err error) {
	text := string(data)
	if strings.HasPrefix(text, `"`) {
		if err := json.Unmarshal(data, &text); err != nil {
			return err
		}
	}
	if text == "null" || text == "" {
		return nil
	}
	*d, err = ParseDocument(text)
	return err
}

// MarshalJSON implements json.Marshaler.
func (d Document) MarshalJSON() ([]byte, error) {
	if d == "" {
		return []byte("null"), nil
	}
	return []byte(d), nil
}

// ReadInventory reads an Inventory from YAML or JSON, and reports all problems in it.
func ReadInventory(data []byte) (*Inventory, error) {
	var i Inventory
	if err := bounded.UnmarshalStrict(data, &i); err != nil {
		return nil, err
	}
	if i.APIVersion != v1alpha1.APIVersion || i.Kind != InventoryKind {
		return nil, fmt.Errorf("apiVersion %q, kind %q: want %q, %q",
			i.APIVersion, i.Kind, v1alpha1.APIVersion, InventoryKind)
	}
	return &i, i.Check()
}

// Check reports all problems in an inventory.
func (i *Inventory) Check() error {
	var wrong []error
	note := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	seen := map[string]bool{}
	once := func(what, name string) {
		switch key := what + " " + name; {
		case name == "":
			note("a %s has no name", what)
		case seen[key]:
			note("%s is there twice", key)
		default:
			seen[key] = true
		}
	}
	for _, r := range i.Roles {
		once("role", r.Name)
	}
	for _, p := range i.Profiles {
		once("instance profile", p.Name)
	}
	for _, p := range i.Policies {
		once("policy", p.ARN)
	}
	for n := range i.Issuers {
		i.Issuers[n].URL = strings.TrimSuffix(strings.TrimPrefix(i.Issuers[n].URL, "https://"), "/")
		once("issuer", i.Issuers[n].URL)
	}
	for _, g := range i.Groups {
		once("security group", g.ID)
		for _, r := range slices.Concat(g.In, g.Out) {
			if err := r.check(); err != nil {
				note("security group %s: %v", g.ID, err)
			}
		}
	}
	for _, v := range i.VPCs {
		once("VPC", v.ID)
		for _, cidr := range v.CIDRs {
			if _, err := netip.ParsePrefix(cidr); err != nil {
				note("VPC %s: %v", v.ID, err)
			}
		}
	}
	return errors.Join(wrong...)
}

func (r Rule) check() error {
	peers := 0
	for _, peer := range []string{r.CIDR, r.Group, r.PrefixList} {
		if peer != "" {
			peers++
		}
	}
	if peers != 1 {
		return fmt.Errorf("a rule names %d peers, not one of cidr, group and prefixList", peers)
	}
	if r.CIDR != "" {
		if _, err := netip.ParsePrefix(r.CIDR); err != nil {
			return err
		}
	}
	if r.Protocol == "" || r.From < -1 || r.To < -1 || r.From > 65535 || r.To > 65535 {
		return fmt.Errorf("a rule is for protocol %q, ports %d to %d", r.Protocol, r.From, r.To)
	}
	return nil
}

// Same reports whether two rules allow the same traffic.
func (r Rule) Same(other Rule) bool {
	r.Text, other.Text = "", ""
	for _, one := range []*Rule{&r, &other} {
		if one.Protocol == "-1" {
			one.From, one.To = -1, -1
		}
	}
	return r == other
}

func (r Rule) String() string {
	peer := r.CIDR + r.Group + r.PrefixList
	switch {
	case r.Protocol == "-1":
		return "everything with " + peer
	case r.From == -1 || r.From == r.To:
		return fmt.Sprintf("%s %d with %s", r.Protocol, r.From, peer)
	}
	return fmt.Sprintf("%s %d-%d with %s", r.Protocol, r.From, r.To, peer)
}

// statements are those of a policy, each in a form that is the same for all that means the same.
func statements(d Document) (objects []map[string]any, normal []string) {
	list, ok := d.object()["Statement"].([]any)
	if !ok {
		list = []any{d.object()["Statement"]}
	}
	for _, one := range list {
		object, ok := one.(map[string]any)
		if !ok {
			continue
		}
		objects = append(objects, object)
		plain := map[string]any{}
		for key, value := range object {
			if key != "Sid" {
				plain[key] = normalise(value)
			}
		}
		normal = append(normal, string(documentOf(plain)))
	}
	return objects, normal
}

// normalise makes a list of a single text, and sorts lists.
func normalise(value any) any {
	switch v := value.(type) {
	case string:
		return []any{v}
	case []any:
		texts := slices.Clone(v)
		sort.SliceStable(texts, func(a, b int) bool { return fmt.Sprint(texts[a]) < fmt.Sprint(texts[b]) })
		return texts
	case map[string]any:
		out := map[string]any{}
		for key, below := range v {
			out[key] = normalise(below)
		}
		return out
	}
	return value
}

// lacking are the statements of a policy that another one has not.
func lacking(want, have Document) []map[string]any {
	_, there := statements(have)
	objects, normal := statements(want)
	var missing []map[string]any
	for n, one := range normal {
		if !slices.Contains(there, one) {
			missing = append(missing, objects[n])
		}
	}
	return missing
}

// with is a policy with more statements. Their ids go: they would be there twice.
func (d Document) with(more []map[string]any) Document {
	object := d.object()
	if object == nil {
		object = map[string]any{"Version": "2012-10-17"}
	}
	list, ok := object["Statement"].([]any)
	if !ok && object["Statement"] != nil {
		list = []any{object["Statement"]}
	}
	for _, one := range more {
		delete(one, "Sid")
		list = append(list, one)
	}
	object["Statement"] = list
	return documentOf(object)
}
