package run

import (
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/theseus-cni/theseus/api/v1alpha1"
	"github.com/theseus-cni/theseus/internal/cluster/kube"
)

// decode reads evidence of at most so many bytes, path by path: its text is never in memory as a whole. It reads what
// encode writes. What encode does not write is another matter: duplicate names, invalid UTF-8 and another number of
// quantiles are refused, and a name in another case is an unknown one, which is left out.
func decode(from io.Reader, most int64) (kube.Collected, error) {
	within := &io.LimitedReader{R: from, N: most + 1}
	in := jsontext.NewDecoder(within)
	collected, err := decodeObject(in)
	if err == nil {
		if _, err = in.ReadToken(); err == nil {
			err = errors.New("it goes on after its end")
		} else if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	if within.N <= 0 {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	if err != nil {
		return kube.Collected{}, err
	}
	return collected, nil
}

func decodeObject(in *jsontext.Decoder) (collected kube.Collected, err error) {
	if err := expect(in, '{'); err != nil {
		return collected, err
	}
	rest := []byte("{")
	for in.PeekKind() != '}' {
		token, err := in.ReadToken()
		if err != nil {
			return collected, err
		}
		switch name := token.String(); name {
		case "paths":
			collected.Paths, err = decodeList[v1alpha1.Path](in)
		case "results":
			collected.Results, err = decodeList[v1alpha1.PathResult](in)
		case "parts":
			collected.Parts, err = decodeList[kube.PartRun](in)
		case "baseline":
			collected.Baseline, err = decodeList[v1alpha1.ProbeReport](in)
		default:
			rest, err = decodeMember(in, rest, name)
		}
		if err != nil {
			return collected, err
		}
	}
	if _, err := in.ReadToken(); err != nil {
		return collected, err
	}
	return collected, json.Unmarshal(append(rest, '}'), &collected)
}

// decodeMember adds a member of an object to the text of a shorter object.
func decodeMember(in *jsontext.Decoder, text []byte, name string) ([]byte, error) {
	value, err := in.ReadValue()
	if err != nil {
		return text, err
	}
	if len(text) > 1 {
		text = append(text, ',')
	}
	if text, err = jsontext.AppendQuote(text, name); err != nil {
		return text, err
	}
	return append(append(text, ':'), value...), nil
}

// decodeList reads a list, or null.
func decodeList[T any](in *jsontext.Decoder) ([]T, error) {
	if in.PeekKind() == 'n' {
		_, err := in.ReadToken()
		return nil, err
	}
	if err := expect(in, '['); err != nil {
		return nil, err
	}
	list := []T{}
	for in.PeekKind() != ']' {
		var one T
		if err := json.UnmarshalDecode(in, &one); err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	_, err := in.ReadToken()
	return list, err
}

func expect(in *jsontext.Decoder, kind jsontext.Kind) error {
	token, err := in.ReadToken()
	if err == nil && token.Kind() != kind {
		err = fmt.Errorf("it has %s where %s begins", token.Kind(), kind)
	}
	return err
}
