package scenarios

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// What a scenario file may hold at most. The YAML parser takes time and stack in the square of the nesting, so hostile
// files are turned away by their tokens, before they reach it.
const (
	maxFile   = 1 << 20
	maxTokens = 20_000
	maxDepth  = 12
	maxIndent = 200
	maxLine   = 10_000
)

// A source is a scenario file's text with the problems found in it so far.
type source struct {
	file     string
	lines    []string
	problems Problems
}

// problem notes a problem at a place; line 0 is the file as a whole.
func (s *source) problem(line, column int, text, suggestion string) {
	p := Problem{File: s.file, Line: line, Column: column, Text: text, Suggestion: suggestion}
	if line > 0 && line <= len(s.lines) {
		p.Source = s.lines[line-1]
	}
	s.problems.List = append(s.problems.List, p)
}

// mapping is the top-level mapping of the one document in src, or nil with the reasons in s.
func (s *source) mapping(src []byte) *ast.MappingNode {
	text, ok := s.text(src)
	if !ok {
		return nil
	}
	tokens, ok := s.tokens(text)
	if !ok {
		return nil
	}
	file, ok := s.parse(tokens)
	if !ok {
		return nil
	}
	return s.document(file)
}

// text checks that src is text at all and not too much of it.
func (s *source) text(src []byte) (string, bool) {
	if len(src) > maxFile {
		s.problem(0, 0, fmt.Sprintf("the file is larger than %d KiB, which no scenario is", maxFile>>10), "")
		return "", false
	}
	src = bytes.TrimPrefix(src, []byte("\ufeff"))
	text := strings.ReplaceAll(string(src), "\r\n", "\n")
	s.lines = strings.Split(text, "\n")
	for i, line := range s.lines {
		for at, r := range line {
			column := utf8.RuneCountInString(line[:at]) + 1
			switch {
			case r == utf8.RuneError && !strings.HasPrefix(line[at:], "\uFFFD"):
				s.problem(i+1, column, "the file is not UTF-8 text", "")
				return "", false
			case r < ' ' && r != '\t', r == 0x7f, r == '\u2028', r == '\u2029', r == '\u0085', r == '\ufeff':
				s.problem(i+1, column, fmt.Sprintf("the character %U has no place in a scenario", r), "")
				return "", false
			}
			if column > maxLine {
				s.problem(i+1, column, fmt.Sprintf("the line is longer than %d characters", maxLine), "")
				return "", false
			}
		}
	}
	return text, true
}

// tokens cuts the text and refuses what no scenario needs: deep nesting, references, tags.
func (s *source) tokens(text string) (tokens token.Tokens, ok bool) {
	defer func() {
		if p := recover(); p != nil {
			s.problem(0, 0, fmt.Sprintf("the file cannot be read as YAML: %v", p), "")
			tokens, ok = nil, false
		}
	}()
	tokens = lexer.Tokenize(text)
	if len(tokens) > maxTokens {
		s.problem(0, 0, fmt.Sprintf("the file holds more than %d words and signs, which no scenario does", maxTokens), "")
		return nil, false
	}
	before := len(s.problems.List)
	depth, line, dashes := 0, 0, 0
	for _, t := range tokens {
		if t.Position.Line != line {
			line, dashes = t.Position.Line, 0
			if t.Position.Column > maxIndent && depth == 0 {
				s.at(t, "the line is indented too far", "")
				return nil, false
			}
		}
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			depth++
		case token.MappingEndType, token.SequenceEndType:
			depth = max(0, depth-1)
		case token.SequenceEntryType:
			dashes++
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			s.at(t, "references (&, * and <<) are not used in scenarios", "write the value out")
		case token.TagType:
			s.at(t, "tags (!) are not used in scenarios", "")
		case token.MappingKeyType:
			s.at(t, "a key that begins with ? is not used in scenarios", "write KEY: VALUE")
		}
		if depth > maxDepth || dashes > maxDepth {
			s.at(t, "the file is nested too deeply", "")
			return nil, false
		}
		if len(s.problems.List)-before >= 20 {
			return nil, false
		}
	}
	return tokens, len(s.problems.List) == before
}

// parse builds the tree; a syntax error ends the reading, since what follows it would be guesswork.
func (s *source) parse(tokens token.Tokens) (file *ast.File, ok bool) {
	defer func() {
		if p := recover(); p != nil {
			s.problem(0, 0, fmt.Sprintf("the file cannot be read as YAML: %v", p), "")
			file, ok = nil, false
		}
	}()
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey()) // duplicates are reported with the rest
	if err == nil {
		return file, true
	}
	var syntax yaml.Error
	if !errors.As(err, &syntax) || syntax.GetToken() == nil || syntax.GetToken().Position == nil {
		s.problem(0, 0, "the file cannot be read as YAML: "+err.Error(), "")
		return nil, false
	}
	text, hint := syntax.GetMessage(), ""
	if strings.ContainsRune(text, '\t') {
		text, hint = "a tab stands where only spaces may", "indent with spaces"
	}
	s.at(syntax.GetToken(), "this is not YAML: "+text, hint)
	return nil, false
}

// document is the mapping of the only document.
func (s *source) document(file *ast.File) *ast.MappingNode {
	var bodies []ast.Node
	for _, d := range file.Docs {
		if d != nil && d.Body != nil {
			bodies = append(bodies, d.Body)
		}
	}
	if len(bodies) == 0 {
		s.problem(0, 0, "the file holds no scenario", "simrun list shows those that come with simrun")
		return nil
	}
	for _, b := range bodies[1:] {
		s.at(b.GetToken(), "a second document begins here", "a file holds one scenario: make a file of each")
	}
	m, ok := bodies[0].(*ast.MappingNode)
	if !ok {
		s.at(bodies[0].GetToken(), "a scenario is written as FIELD: VALUE lines, the first of them name: ...", "")
		return nil
	}
	return m
}

// at notes a problem at a token.
func (s *source) at(t *token.Token, text, suggestion string) {
	if t == nil || t.Position == nil {
		s.problem(0, 0, text, suggestion)
		return
	}
	s.problem(t.Position.Line, t.Position.Column, text, suggestion)
}
