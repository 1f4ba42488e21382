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

// Redacted replaces secret values in a snapshot. No plan may write it: Verify in internal/change/plan refuses such a
// plan.
const Redacted = "(redacted by theseus)"

// secretEndings are the suffixes of names whose values are secrets, in lower case and without separators. A name that
// ends in FILE, PATH, NAME or REF refers to a secret, but its value is not one.
func secretEndings() []string {
	return []string{"password", "passwd", "passphrase", "token", "secret", "secretkey", "privatekey",
		"apikey", "accesskey", "authkey", "encryptionkey", "credentials", "psk", "bearer"}
}

// listed matches the paths of environment variables and command-line arguments by their index.
var listed = regexp.MustCompile(`(?:^|\.)(?:(env)\[\d+\]\.value|(?:args|command)\[\d+\])$`)

// separators are removed from names before they are compared.
var separators = strings.NewReplacer("_", "", "-", "", ".", "")

// userInfo matches the user and the password in a URL.
var userInfo = regexp.MustCompile(`://[^/@\s:]*:[^/@\s]+@`)

// flagValue matches a command-line flag with its value.
var flagValue = regexp.MustCompile(`^(--?([A-Za-z][A-Za-z0-9._-]*)=)(.+)$`)

// SecretName reports whether a variable, field or flag of this name holds a secret.
func SecretName(name string) bool {
	name = separators.Replace(strings.ToLower(name))
	return slices.ContainsFunc(secretEndings(), func(end string) bool { return strings.HasSuffix(name, end) })
}

// redactText returns a value with its secret parts redacted.
func redactText(name, value string) string {
	switch {
	case value == "", value == "true", value == "false":
		// a boolean option that concerns a secret, not the secret itself
		return value
	case SecretName(name):
		return Redacted
	case strings.Contains(value, "://"):
		return userInfo.ReplaceAllString(value, "://"+Redacted+"@")
	}
	return value
}

// redactArgument returns a command-line argument with its secret parts redacted.
func redactArgument(word string) string {
	if part := flagValue.FindStringSubmatch(word); part != nil {
		return part[1] + redactText(part[2], part[3])
	}
	return redactText("", word)
}

// redactContainers redacts secrets in containers' environments and command lines.
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

// Redact redacts the secrets in an object: in fields with secret-sounding names, environment variables, command-line
// flags, and URLs. It modifies the object.
func Redact(object map[string]any) { redaction{edit: true}.mapping(object, "") }

// Secrets returns the paths of the values that Redact would redact in an object.
func Secrets(object map[string]any) []string {
	var found []string
	redaction{found: &found}.mapping(object, "")
	slices.Sort(found)
	return found
}

// RedactField returns a redacted copy of a field's value. The path names the field, such as
// spec.containers[a].env[API_TOKEN].value: if any part of it is the name of a secret, the value is redacted.
func RedactField(path string, value any) any {
	if text, ok := value.(string); ok {
		switch at := listed.FindStringSubmatch(path); {
		case at != nil && at[1] == "env":
			return Redacted // the index alone does not tell the name, so assume a secret
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

// redaction walks an object.
type redaction struct {
	edit  bool
	found *[]string
}

func (r redaction) mapping(tree map[string]any, path string) {
	variable, _ := tree["name"].(string)
	for key, value := range tree {
		name := key
		if key == "value" && variable != "" {
			name = variable // the name of the environment variable
		}
		tree[key] = r.value(name, value, path+"."+key)
	}
}

// value returns a redacted value; name is the name of its field or variable.
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

// item returns a redacted list item: of a list with a secret's name, of a command line, or of any other list.
func (r redaction) item(list string, value any, path string) any {
	if word, ok := value.(string); ok && (list == "args" || list == "command") {
		return r.note(word, redactArgument(word), path)
	}
	return r.value(list, value, path)
}

// text is redactText, but also looks into objects embedded as text, as in a NetworkAttachmentDefinition.
func (r redaction) text(name, value string) string {
	var inner map[string]any
	if SecretName(name) || !strings.HasPrefix(strings.TrimSpace(value), "{") ||
		json.Unmarshal([]byte(value), &inner) != nil || len(Secrets(inner)) == 0 {
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
