// Package image rewrites the names of container images by their parts: registry, repository, tag and digest.
package image

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/distribution/reference"
)

// Rule says that images of one place are pulled from another. A place is a registry, or a registry
// and the first parts of a repository: registry.example.com, registry.example.com/team.
type Rule struct{ Old, New string }

// Rules are tried in order, the longest Old first; the first that fits counts.
type Rules struct {
	rules []Rule
	// Fields are the paths of image fields of kinds that are not pods or have no pod template, by kind
	// (Kind.group). A path is names with dots between them; a name that ends in [] goes through a list, and *
	// through all fields of a map.
	Fields map[string][]string
}

// ParseRules takes rules as OLD=NEW.
func ParseRules(texts []string) (Rules, error) {
	r := Rules{Fields: map[string][]string{}}
	for _, text := range texts {
		old, replacement, ok := strings.Cut(text, "=")
		if !ok {
			return r, fmt.Errorf(
				"%q is not a rule: give OLD=NEW, such as registry.example.com=registry-mirror.example.com", text)
		}
		var places [2]string
		for i, place := range []string{old, replacement} {
			place = strings.TrimSuffix(place, "/")
			named, err := reference.ParseNormalizedNamed(place + "/x/y")
			if err != nil || named.Name() != place+"/x/y" {
				return r, fmt.Errorf("%q in %q is not a registry: give a host name with a dot or a port, and "+
					"parts of a "+
					"repository after it", place, text)
			}
			places[i] = place
		}
		if slices.ContainsFunc(r.rules, func(rule Rule) bool { return rule.Old == places[0] }) {
			return r, fmt.Errorf("two rules for %q", places[0])
		}
		r.rules = append(r.rules, Rule{places[0], places[1]})
	}
	slices.SortStableFunc(r.rules, func(a, b Rule) int { return len(b.Old) - len(a.Old) })
	return r, nil
}

// ParseFields takes paths of image fields as Kind.group=path.
func (r *Rules) ParseFields(texts []string) error {
	for _, text := range texts {
		kind, path, ok := strings.Cut(text, "=")
		if !ok || kind == "" || path == "" {
			return fmt.Errorf("%q names no image field: give Kind.group=path, such as Database.example.com=spec.image",
				text)
		}
		r.Fields[kind] = append(r.Fields[kind], path)
	}
	return nil
}

// Rules are the rules, in the order in which they are tried.
func (r Rules) Rules() []Rule { return slices.Clone(r.rules) }

// Name rewrites one name. It returns false where no rule fits, or where the text is not the name of an image. A tag and
// a digest stay as they are; none is added.
func (r Rules) Name(name string) (string, bool) {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return name, false
	}
	full := named.Name()
	for _, rule := range r.rules {
		rest, ok := strings.CutPrefix(full, rule.Old+"/")
		if !ok {
			continue
		}
		rewritten := rule.New + "/" + rest
		if tagged, ok := named.(reference.Tagged); ok {
			rewritten += ":" + tagged.Tag()
		}
		if digested, ok := named.(reference.Digested); ok {
			rewritten += "@" + digested.Digest().String()
		}
		return rewritten, true
	}
	return name, false
}

// Edit is one field that was rewritten.
type Edit struct{ Path, Old, New string }

// Rewrite changes the images of an object in place: those of containers of every sort wherever there is a list of
// them, image volumes, and the fields that the rules name for the kind (Kind.group).
func (r Rules) Rewrite(object map[string]any, kind string) []Edit {
	if len(r.rules) == 0 {
		return nil
	}
	var changes []Edit
	Each(object, kind, r.Fields, func(path string, name string) string {
		rewritten, ok := r.Name(name)
		if ok && rewritten != name {
			changes = append(changes, Edit{path, name, rewritten})
		}
		return rewritten
	})
	return changes
}

// Each calls a function for every image of an object, and writes what it returns.
func Each(object map[string]any, kind string, fields map[string][]string, use func(path, name string) string) {
	containers("", object, use)
	for _, path := range fields[kind] {
		field(object, strings.Split(path, "."), "", use)
	}
}

// Doubts are fields that are called after images and whose value a rule would rewrite, but that are not listed as
// image fields.
func (r Rules) Doubts(object map[string]any) []Edit {
	var found []Edit
	var walk func(path string, value any)
	walk = func(path string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for _, name := range slices.Sorted(maps.Keys(value)) {
				walk(strings.TrimPrefix(path+"."+name, "."), value[name])
			}
		case []any:
			for _, item := range value {
				walk(path+"[]", item)
			}
		case string:
			last := strings.ToLower(path[strings.LastIndex(path, ".")+1:])
			if strings.HasPrefix(path, "metadata") ||
				!strings.Contains(last, "image") && !strings.Contains(last, "repository") {
				return
			}
			if rewritten, ok := r.Name(value); ok {
				found = append(found, Edit{path, value, rewritten})
			}
		}
	}
	if len(r.rules) > 0 {
		walk("", object)
	}
	return found
}

// containers finds lists of containers, and image volumes, wherever a pod's specification is embedded.
func containers(path string, value any, use func(path, name string) string) {
	switch value := value.(type) {
	case []any:
		for i, item := range value {
			containers(path+"["+strconv.Itoa(i)+"]", item, use)
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			below := strings.TrimPrefix(path+"."+name, ".")
			switch name {
			case "containers", "initContainers", "ephemeralContainers":
				each(below, value[name], "image", use)
			case "volumes":
				items, _ := value[name].([]any)
				for i, item := range items {
					if fields, ok := item.(map[string]any); ok {
						inside(fmt.Sprintf("%s[%d].image", below, i), fields["image"], "reference", use)
					}
				}
			}
			containers(below, value[name], use)
		}
	}
}

func each(path string, list any, name string, use func(path, name string) string) {
	items, _ := list.([]any)
	for i, item := range items {
		inside(fmt.Sprintf("%s[%d]", path, i), item, name, use)
	}
}

// inside uses a field of a map that is a text.
func inside(path string, value any, name string, use func(path, name string) string) {
	fields, ok := value.(map[string]any)
	if !ok {
		return
	}
	if image, ok := fields[name].(string); ok && image != "" {
		fields[name] = use(path+"."+name, image)
	}
}

// field follows the path of a rule.
func field(value any, path []string, done string, use func(path, name string) string) {
	fields, ok := value.(map[string]any)
	if !ok {
		return
	}
	name, list := strings.CutSuffix(path[0], "[]")
	names := []string{name}
	if name == "*" {
		names = slices.Sorted(maps.Keys(fields))
	}
	for _, name := range names {
		where := strings.TrimPrefix(done+"."+name, ".")
		switch {
		case len(path) == 1 && list:
			items, _ := fields[name].([]any)
			for i, item := range items {
				if image, ok := item.(string); ok {
					items[i] = use(fmt.Sprintf("%s[%d]", where, i), image)
				}
			}
		case len(path) == 1:
			inside(done, fields, name, use)
		case list:
			items, _ := fields[name].([]any)
			for i, item := range items {
				field(item, path[1:], fmt.Sprintf("%s[%d]", where, i), use)
			}
		default:
			field(fields[name], path[1:], where, use)
		}
	}
}

// RewriteSecret gives a Secret with logins for registries (kubernetes.io/dockerconfigjson) an entry for every new
// place of which it has the old one, and returns the new places. An entry that is there already stays.
func (r Rules) RewriteSecret(secret map[string]any) []string {
	if secret["type"] != "kubernetes.io/dockerconfigjson" || len(r.rules) == 0 {
		return nil
	}
	data, _ := secret["data"].(map[string]any)
	encoded, _ := data[".dockerconfigjson"].(string)
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil
	}
	var config map[string]json.RawMessage
	var auths map[string]json.RawMessage
	if json.Unmarshal(raw, &config) != nil || json.Unmarshal(config["auths"], &auths) != nil {
		return nil
	}
	var added []string
	for _, host := range slices.Sorted(maps.Keys(auths)) {
		for _, rule := range r.rules {
			if !SameRegistry(host, rule.Old) {
				continue
			}
			if _, there := auths[Registry(rule.New)]; !there {
				auths[Registry(rule.New)] = auths[host]
				added = append(added, Registry(rule.New))
			}
		}
	}
	if len(added) == 0 {
		return nil
	}
	if config["auths"], err = json.Marshal(auths); err != nil {
		return nil
	}
	if raw, err = json.Marshal(config); err != nil {
		return nil
	}
	data[".dockerconfigjson"] = base64.StdEncoding.EncodeToString(raw)
	return added
}

// Registry is the host, and port, of a place.
func Registry(place string) string {
	host, _, _ := strings.Cut(place, "/")
	return host
}

// SameRegistry says whether the key of a login (https://registry.example.com/v1/, registry.example.com) is for the
// registry of a place.
func SameRegistry(login, place string) bool {
	login = strings.TrimPrefix(strings.TrimPrefix(login, "https://"), "http://")
	host := Registry(login)
	if host == "index.docker.io" {
		host = "docker.io"
	}
	return host == Registry(place)
}
