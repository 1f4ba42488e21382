package debian

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/theseus-cni/theseus/release/layer"
)

// dropped matches what an image has no use for: documentation but for licences, translations, what starts services,
// and glibc's conversions between encodings of text.
var dropped = regexp.MustCompile(
	`^/usr/share/(man|locale|lintian|bug|info|menu|doc-base|debianutils|perl5|bash-completion|gcc|gdb)/` +
		`|^/usr/share/doc/.*/(.*\.gz|NEWS.*|README.*|TODO.*|AUTHORS.*|changelog.*|examples/.*|THANKS.*|FAQ.*)$` +
		`|^/usr/lib/(systemd|tmpfiles\.d|[^/]*/gconv|[^/]*/audit)/|^/etc/(init\.d|default|ca-certificates)/|^/usr/share/libc-bin/`)

// programDir matches the folders in which an image has only the programs that are named.
var programDir = regexp.MustCompile(`^/usr/(s?bin|games)/`)

// Unpack is what a package brings to an image: all but what is dropped, and of its programs only the ones named, with
// what they are links to. The record of the package goes where scanners of images look for it.
func Unpack(ctx context.Context, deb string, p Package, programs []string) ([]layer.File, error) {
	out, err := dpkg(ctx, "--fsys-tarfile", deb)
	if err != nil {
		return nil, err
	}
	files, err := read(tar.NewReader(bytes.NewReader(out)))
	if err != nil {
		return nil, fmt.Errorf("read the package %s: %w", p.Name, err)
	}
	wanted := linked(files, programs)
	files = slices.DeleteFunc(files, func(f layer.File) bool {
		return dropped.MatchString(f.Path) || programDir.MatchString(f.Path) && !wanted[f.Path]
	})
	control, err := dpkg(ctx, "--field", deb)
	if err != nil {
		return nil, err
	}
	return append(files, layer.Text("/var/lib/dpkg/status.d/"+p.Name, string(control))), nil
}

func dpkg(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "dpkg-deb", args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("dpkg-deb %s: %w: %s", args[0], err, strings.TrimSpace(errs.String()))
	}
	return out, nil
}

// read takes the files of a package. Folders are made for what is in them.
func read(entries *tar.Reader) ([]layer.File, error) {
	var files []layer.File
	for {
		header, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		f := layer.File{Path: Merged(path.Join("/", header.Name)), Mode: header.FileInfo().Mode().Perm(),
			Time: header.ModTime}
		switch header.Typeflag {
		case tar.TypeDir:
			continue
		case tar.TypeSymlink:
			f.Link = header.Linkname
		case tar.TypeLink:
			f.Hard = Merged(path.Join("/", header.Linkname))
		case tar.TypeReg:
			content, err := io.ReadAll(entries)
			if err != nil {
				return nil, err
			}
			f.Content = string(content)
		default:
			return nil, fmt.Errorf("%s is of the type %c, which no image needs", header.Name, header.Typeflag)
		}
		files = append(files, f)
	}
}

// Merged is a path as it reads where /bin, /sbin, /lib and /lib64 are links into /usr.
func Merged(file string) string {
	for _, top := range []string{"/bin/", "/sbin/", "/lib/", "/lib64/"} {
		if strings.HasPrefix(file, top) {
			return "/usr" + file
		}
	}
	return file
}

// linked are the paths of programs, and of the programs that they are links to.
func linked(files []layer.File, programs []string) map[string]bool {
	links := map[string]string{}
	wanted := map[string]bool{}
	for _, f := range files {
		links[f.Path] = f.Hard
		if f.Link != "" {
			links[f.Path] = Merged(path.Join(path.Dir(f.Path), f.Link))
			if path.IsAbs(f.Link) {
				links[f.Path] = Merged(f.Link)
			}
		}
		if programDir.MatchString(f.Path) && slices.Contains(programs, path.Base(f.Path)) {
			wanted[f.Path] = true
		}
	}
	for name := range wanted {
		for to := links[name]; to != "" && !wanted[to]; to = links[to] {
			wanted[to] = true
		}
	}
	return wanted
}
