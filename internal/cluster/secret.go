package cluster

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Redacted stands in a snapshot for a value that is a secret. No plan may write it: Verify in internal/change/plan refuses that.
const Redacted = "(redacted by theseus)"

// secretEndings are the ends of names whose values are secrets, in lower case and without separators. A name that ends
// in FILE, PATH, NAME or REF says where a secret is, and is not one.
func secretEndings() []string {
	return []string{"password", "passwd", "passphrase", "token", "secret", "secretkey", "privatekey", "apikey", "accesskey", "authkey",
		"encryptionkey", "credentials", "psk", "bearer"}
}

// listed are paths of variables and of words of command lines by their place in a list.
var listed = regexp.MustCompile(`(?:^|\.)(?:(env)\[\d+\]\.value|(?:args|command)\[\d+\])$`)

// separators are left out of names before they are compared.
var separators = strings.NewReplacer("_", "", "-", "", ".", "")

// userInfo is the user and the password within a URL.
var userInfo = regexp.MustCompile(`://[^/@\s:]*:[^/@\s]+@`)

// flagValue is a command line flag with its value.
var flagValue = regexp.MustCompile(`^(--?([A-Za-z][A-Za-z0-9._-]*)=)(.+)$`)

// SecretName reports whether a variable, field or flag of this name holds a secret.
func SecretName(name string) bool {
	name = separators.Replace(strings.ToLower(name))
	return slices.ContainsFunc(secretEndings(), func(end string) bool { return strings.HasSuffix(name, end) })
}

// redactText is a value without what is secret of it.
func redactText(name, value string) string {
	switch {
	case value == "", value == "true", value == "false": // a switch whether something is done with a secret
		return value
	case SecretName(name):
		return Redacted
	case strings.Contains(value, "://"):
		return userInfo.ReplaceAllString(value, "://"+Redacted+"@")
	}
	return value
}

// redactArgument is a word of a command line without what is secret of it.
func redactArgument(word string) string {
	if part := flagValue.FindStringSubmatch(word); part != nil {
		return part[1] + redactText(part[2], part[3])
	}
	return redactText("", word)
}

// redactContainers takes secrets out of what containers are started with.
func redactContainers(containers []corev1.Container) {
	for i := range containers {
		for j := range containers[i].Env {
			one := &containers[i].Env[j]
			one.Value = redactText(one.Name, one.Value)
		}
		for _, words := range [][]string{containers[i].Command, containers[i].Args} {
			for j, word := range words {
				words[j] = redactArgument(word)
			}
		}
	}
}

// Redact takes the secrets out of an object: fields whose names say that they hold one, variables, flags of command lines,
// and passwords in URLs. It changes the object.
func Redact(object map[string]any) { redaction{edit: true}.mapping(object, "") }

// Secrets are the paths of what Redact would take out of an object.
func Secrets(object map[string]any) []string {
	var found []string
	redaction{found: &found}.mapping(object, "")
	slices.Sort(found)
	return found
}

// RedactField is the value of a field without its secrets; it changes nothing. The path names the field, such as
// spec.containers[a].env[API_TOKEN].value: whatever in it names a secret makes the value one.
func RedactField(path string, value any) any {
	if text, ok := value.(string); ok {
		switch at := listed.FindStringSubmatch(path); {
		case at != nil && at[1] == "env":
			return Redacted // by its place alone, which does not say whose value it is
		case at != nil:
			return redactArgument(text)
		}
	}
	name := ""
	for _, part := range strings.FieldsFunc(path, func(r rune) bool { return strings.ContainsRune(`.[]="/`, r) }) {
		if SecretName(part) {
			name = part
		}
	}
	data, err := json.Marshal(map[string]any{cmp.Or(name, "field"): value})
	var tree map[string]any
	if err != nil || json.Unmarshal(data, &tree) != nil {
		return Redacted
	}
	Redact(tree)
	return tree[cmp.Or(name, "field")]
}

// redaction walks through an object.
type redaction struct {
	edit  bool
	found *[]string
}

func (r redaction) mapping(tree map[string]any, path string) {
	variable, _ := tree["name"].(string)
	for key, value := range tree {
		name := key
		if key == "value" && variable != "" {
			name = variable // of an environment
		}
		tree[key] = r.value(name, value, path+"."+key)
	}
}

// value is a value without its secrets; the name is the one that says what it holds.
func (r redaction) value(name string, value any, path string) any {
	switch value := value.(type) {
	case map[string]any:
		r.mapping(value, path)
	case []any:
		for i, one := range value {
			value[i] = r.item(name, one, path+"["+strconv.Itoa(i)+"]")
		}
	case string:
		return r.note(value, r.text(name, value), path)
	}
	return value
}

// item is an item of a list: of texts under a secret's name, of a command line, or of anything.
func (r redaction) item(list string, value any, path string) any {
	if word, ok := value.(string); ok && (list == "args" || list == "command") {
		return r.note(word, redactArgument(word), path)
	}
	return r.value(list, value, path)
}

// text is redactText, and looks into objects that are written as text, as in a NetworkAttachmentDefinition.
func (r redaction) text(name, value string) string {
	var inner map[string]any
	if SecretName(name) || !strings.HasPrefix(strings.TrimSpace(value), "{") || json.Unmarshal([]byte(value), &inner) != nil || len(Secrets(inner)) == 0 {
		return redactText(name, value)
	}
	Redact(inner)
	clean, err := json.Marshal(inner)
	if err != nil {
		return Redacted
	}
	return string(clean)
}

func (r redaction) note(before, after, path string) string {
	if before == after || before == Redacted {
		return before
	}
	if r.found != nil {
		*r.found = append(*r.found, strings.TrimPrefix(path, "."))
	}
	if r.edit {
		return after
	}
	return before
}
