// Package sbom writes software bills of materials, in the JSON of SPDX 2.3: which modules of Go a program was built
// of, and which packages of Debian are in an image.
package sbom

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	spdx "github.com/spdx/tools-golang/spdx/v2/v2_3"

	"github.com/theseus-cni/theseus/release/internal/debian"
)

// Subject is what a bill is of.
type Subject struct {
	Name    string // such as theseus-agent
	Version string
	Time    time.Time // of the commit
	Source  string    // address of the repository
	Purpose string    // SPDX's word: APPLICATION or CONTAINER
}

// bill is a document under way.
type bill struct {
	document *spdx.Document
	seen     map[common.ElementID]bool
}

const none = "NOASSERTION"

// Of is the bill of a subject that has the programs of Go at these files, and these packages of Debian.
func Of(subject Subject, programs []string, suite, architecture string, packages []debian.Package) ([]byte, error) {
	b := &bill{seen: map[common.ElementID]bool{}, document: &spdx.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT",
		DocumentName: subject.Name + "-" + subject.Version,
		CreationInfo: &spdx.CreationInfo{Created: subject.Time.UTC().Format(time.RFC3339),
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "theseus-release"}}},
	}}
	root := b.add(&spdx.Package{
		PackageName: subject.Name, PackageSPDXIdentifier: identifier("Subject", subject.Name),
		PackageVersion: subject.Version, PackageDownloadLocation: "git+" + subject.Source,
		PackageLicenseDeclared: "Apache-2.0", PrimaryPackagePurpose: subject.Purpose,
	}, "DOCUMENT", common.TypeRelationshipDescribe)
	for _, file := range programs {
		info, err := buildinfo.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read what %s was built of: %w", file, err)
		}
		b.modules(root, info)
	}
	for _, p := range packages {
		b.add(&spdx.Package{
			PackageName: p.Name, PackageSPDXIdentifier: identifier("Debian", p.Name), PackageVersion: p.Version,
			PackageSupplier:         &common.Supplier{SupplierType: "Organization", Supplier: "Debian"},
			PackageDownloadLocation: none, PackageLicenseDeclared: none,
			PackageChecksums: []common.Checksum{{Algorithm: common.SHA256, Value: p.SHA256}},
			PackageExternalReferences: purl(fmt.Sprintf("pkg:deb/debian/%s@%s?arch=%s&distro=%s",
				escape(p.Name), escape(p.Version), architecture, suite)),
		}, root, common.TypeRelationshipContains)
	}
	return b.text()
}

// modules adds those of a program, and Go itself.
func (b *bill) modules(root common.ElementID, info *debug.BuildInfo) {
	b.add(&spdx.Package{
		PackageName: "std", PackageSPDXIdentifier: identifier("Go", "std"),
		PackageVersion: strings.TrimPrefix(info.GoVersion, "go"), PackageDownloadLocation: "https://go.dev/dl/",
		PackageLicenseDeclared:    "BSD-3-Clause",
		PackageExternalReferences: purl("pkg:golang/std@" + escape(strings.TrimPrefix(info.GoVersion, "go"))),
	}, root, common.TypeRelationshipContains)
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		p := &spdx.Package{
			PackageName: m.Path, PackageSPDXIdentifier: identifier("Go", m.Path), PackageVersion: m.Version,
			PackageDownloadLocation: none, PackageLicenseDeclared: none,
			PackageExternalReferences: purl("pkg:golang/" + m.Path + "@" + escape(m.Version)),
		}
		if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil &&
			len(sum) == sha256.Size {
			p.PackageComment = "h1 hash of the module's files, as in go.sum: " + m.Sum
		}
		b.add(p, root, common.TypeRelationshipContains)
	}
}

// add adds a package once, and how the subject is related to it.
func (b *bill) add(p *spdx.Package, of common.ElementID, relation string) common.ElementID {
	id := p.PackageSPDXIdentifier
	if b.seen[id] {
		return id
	}
	b.seen[id] = true
	p.PackageLicenseConcluded, p.PackageCopyrightText = none, none
	b.document.Packages = append(b.document.Packages, p)
	b.document.Relationships = append(b.document.Relationships, &spdx.Relationship{
		RefA: common.DocElementID{ElementRefID: of}, RefB: common.DocElementID{ElementRefID: id},
		Relationship: relation})
	return id
}

// text is the document, whose name in the world depends on what is in it.
func (b *bill) text() ([]byte, error) {
	var draft bytes.Buffer
	if err := spdxjson.Write(b.document, &draft); err != nil {
		return nil, fmt.Errorf("encode the bill of materials: %w", err)
	}
	sum := sha256.Sum256(draft.Bytes())
	b.document.DocumentNamespace = "https://spdx.org/spdxdocs/" + b.document.DocumentName +
		"-" + hex.EncodeToString(sum[:16])
	var out bytes.Buffer
	if err := spdxjson.Write(b.document, &out, spdxjson.Indent(" ")); err != nil {
		return nil, fmt.Errorf("encode the bill of materials: %w", err)
	}
	return out.Bytes(), nil
}

// identifier is one of SPDX: letters, digits, dots and dashes.
func identifier(kind, name string) common.ElementID {
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' {
			return r
		}
		return '-'
	}, name)
	sum := sha256.Sum256([]byte(name))
	if plain != name { // two names must not become one
		plain += "-" + hex.EncodeToString(sum[:4])
	}
	return common.ElementID(kind + "-" + plain)
}

// escape writes what a package's address may not hold as it is.
func escape(text string) string {
	return strings.NewReplacer("%", "%25", "+", "%2B", ":", "%3A", "~", "%7E", " ", "%20").Replace(text)
}

func purl(address string) []*spdx.PackageExternalReference {
	return []*spdx.PackageExternalReference{{Category: common.CategoryPackageManager,
		RefType: common.TypePackageManagerPURL, Locator: address}}
}
