package objects

import (
	"cmp"
	"encoding/base64"
	"slices"

	"github.com/theseus-cni/theseus/internal/mirror/image"
)

// ImageUse is an image that was rewritten, and with whose logins it will be pulled on the mirror.
type ImageUse struct {
	Old, New  string
	Namespace string
	Secrets   []string // names of the pull secrets
	Logins    [][]byte // what is in those that go over: documents .dockerconfigjson
	By        []Key
}

// Images are the images that were rewritten, each once for every set of pull secrets.
func (p *Plan) Images() []ImageUse {
	var uses []ImageUse
	for _, wave := range p.Waves {
		for _, item := range wave {
			if len(item.Images) == 0 {
				continue
			}
			key := KeyOf(item.Object)
			secrets := p.pullSecrets(item.Object)
			for _, change := range item.Images {
				i := slices.IndexFunc(uses, func(u ImageUse) bool {
					return u.New == change.New && u.Namespace == key.Namespace && slices.Equal(u.Secrets, secrets)
				})
				if i < 0 {
					i = len(uses)
					uses = append(uses, ImageUse{Old: change.Old, New: change.New, Namespace: key.Namespace,
						Secrets: secrets, Logins: p.logins(key.Namespace, secrets)})
				}
				if !slices.Contains(uses[i].By, key) {
					uses[i].By = append(uses[i].By, key)
				}
			}
		}
	}
	slices.SortFunc(uses, func(a, b ImageUse) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.New, b.New),
			slices.Compare(a.Secrets, b.Secrets))
	})
	return uses
}

// pullSecrets are those that an object names and those of the service accounts of its pods. For a kind without
// containers it is unknown what its operator uses: all of the namespace.
func (p *Plan) pullSecrets(object Object) []string {
	var names []string
	accounts := []string{}
	pods := false
	image.Each(object.DeepCopy().Object, "", nil, func(_, name string) string { pods = true; return name })
	for _, ref := range referencesOf(object) {
		if ref.Kind == "ServiceAccount" && ref.Namespace == object.GetNamespace() {
			accounts = append(accounts, ref.Name)
		}
	}
	if len(accounts) == 0 {
		accounts = append(accounts, "default")
	}
	collect := func(from Object) {
		walkPullSecrets(from.Object, func(name string) { names = append(names, name) })
	}
	collect(object)
	for _, name := range accounts {
		if account := p.items[Key{"", "ServiceAccount", object.GetNamespace(), name}]; account != nil {
			collect(account.Object)
		}
	}
	if !pods {
		for key, item := range p.items {
			if key.Kind == "Secret" && key.Group == "" && key.Namespace == object.GetNamespace() &&
				text(item.Object, "type") == "kubernetes.io/dockerconfigjson" {
				names = append(names, key.Name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func walkPullSecrets(value any, found func(string)) {
	switch value := value.(type) {
	case []any:
		for _, item := range value {
			walkPullSecrets(item, found)
		}
	case map[string]any:
		secrets, _ := value["imagePullSecrets"].([]any)
		for _, secret := range secrets {
			if fields, ok := secret.(map[string]any); ok {
				if name, ok := fields["name"].(string); ok {
					found(name)
				}
			}
		}
		for _, below := range value {
			walkPullSecrets(below, found)
		}
	}
}

func (p *Plan) logins(namespace string, names []string) [][]byte {
	var documents [][]byte
	for _, name := range names {
		item := p.items[Key{"", "Secret", namespace, name}]
		if item == nil {
			continue
		}
		if document, err := base64.StdEncoding.DecodeString(text(item.Object, "data",
			".dockerconfigjson")); err == nil && len(document) > 0 {
			documents = append(documents, document)
		}
	}
	return documents
}

// Doubts are fields that look like images that ought to be rewritten, and that are not listed as such.
func (p *Plan) Doubts() []string {
	var doubts []string
	for _, wave := range p.Waves {
		for _, item := range wave {
			for _, doubt := range p.options.Images.Doubts(item.Object.Object) {
				key := KeyOf(item.Object)
				doubts = append(doubts, key.String()+": "+doubt.Path+" may name an image, "+doubt.Old+
					", and stays: --image-field '"+key.GroupKind().String()+"="+doubt.Path+"' rewrites it")
			}
		}
	}
	return doubts
}
