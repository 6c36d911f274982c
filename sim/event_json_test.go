package sim

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestEventJSON compares with encoding/json: events of which some fields are set, with all there may be in a string.
func TestEventJSON(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var e Event
		v := reflect.ValueOf(&e).Elem()
		for i := range v.NumField() {
			if f := v.Field(i); rapid.Bool().Draw(t, v.Type().Field(i).Name) {
				f.Set(reflect.ValueOf(drawn(t, f.Type())).Convert(f.Type()))
			}
		}
		var want bytes.Buffer
		require.NoError(t, json.NewEncoder(&want).Encode(e))
		require.Equal(t, want.String(), string(e.appendJSON(nil))+"\n")
	})
}

func drawn(t *rapid.T, typ reflect.Type) any {
	text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"SELECT 1", "a<b>&\"'\\", "\x00\x7f\u2028\xff", "é"}))
	switch typ.Kind() {
	case reflect.String:
		return text.Draw(t, "string")
	case reflect.Int, reflect.Int64:
		return rapid.Int64().Draw(t, "number")
	case reflect.Slice:
		if typ.Elem().Kind() == reflect.Int {
			return rapid.SliceOf(rapid.Int()).Draw(t, "numbers")
		}
		return rapid.SliceOf(text).Draw(t, "strings")
	}
	t.Fatalf("an event has a field of type %s, which appendJSON must learn to write", typ)
	return nil
}
