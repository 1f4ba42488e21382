package shell

import (
	"errors"
	"strings"
)

// Split divides a command as a POSIX shell does it, by blanks, with 'quotes', "quotes" and backslashes, and does
// nothing else that a shell does: $, *, ~, | and > stand for themselves.
func Split(command string) ([]string, error) {
	if strings.IndexByte(command, 0) >= 0 {
		return nil, errors.New("it holds a byte 0") // no program can take it as an argument
	}
	s := splitter{rest: command}
	for s.rest != "" {
		if err := s.next(); err != nil {
			return nil, err
		}
	}
	s.end()
	if len(s.words) == 0 || s.words[0] == "" {
		return nil, errors.New("it names no program")
	}
	return s.words, nil
}

type splitter struct {
	rest  string
	words []string
	word  strings.Builder
	open  bool // a word has begun, which may be empty
}

func (s *splitter) end() {
	if s.open {
		s.words = append(s.words, s.word.String())
	}
	s.word.Reset()
	s.open = false
}

// next takes one blank, quoted text, escaped or plain byte.
func (s *splitter) next() error {
	c := s.rest[0]
	s.rest = s.rest[1:]
	switch c {
	case ' ', '\t', '\n', '\r':
		s.end()
		return nil
	case '\'', '"':
		s.open = true
		return s.quoted(c)
	case '\\':
		if s.rest == "" {
			return errors.New("it ends in a backslash")
		}
		c, s.rest = s.rest[0], s.rest[1:]
	}
	s.open = true
	s.word.WriteByte(c)
	return nil
}

func (s *splitter) quoted(quote byte) error {
	for s.rest != "" {
		c := s.rest[0]
		s.rest = s.rest[1:]
		switch {
		case c == quote:
			return nil
		case c == '\\' && quote == '"' && s.rest != "" && strings.IndexByte("\\\"$`", s.rest[0]) >= 0:
			c, s.rest = s.rest[0], s.rest[1:]
		}
		s.word.WriteByte(c)
	}
	return errors.New("a quote is not closed")
}
