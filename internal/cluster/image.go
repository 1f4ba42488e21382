package cluster

import (
	"path"
	"strings"

	"github.com/distribution/reference"
)

// Image is the name of a container's image, taken apart; all of it is empty where a text is no such name.
type Image struct {
	Name string // with registry and folder, such as docker.io/library/nginx
	Base string // its last part, such as nginx
	Tag  string // empty where none is given
}

// ImageOf reads an image's name. A digest is left out, whether it is a sound one or not.
func ImageOf(text string) Image {
	text, _, _ = strings.Cut(text, "@")
	named, err := reference.ParseNormalizedNamed(text)
	if err != nil {
		return Image{}
	}
	image := Image{Name: named.Name(), Base: path.Base(named.Name())}
	if tagged, ok := named.(reference.Tagged); ok {
		image.Tag = tagged.Tag()
	}
	return image
}
