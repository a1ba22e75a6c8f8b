package main

import "testing"

func TestAnInternationalNameIsAskedForInASCII(t *testing.T) {
	for name, want := range map[string]string{"bücher.example": "xn--bcher-kva.example.", "BÜCHER.example.": "xn--bcher-kva.example.", "_dmarc.bücher.example": "_dmarc.xn--bcher-kva.example."} {
		s := settings{Name: name, Type: "A", Rcode: "NOERROR", Network: "udp"}
		if err := s.Prepare(); err != nil || s.question.Name.String() != want {
			t.Errorf("%s: got %v, %v", name, s.question.Name, err)
		}
	}
	s := settings{Name: "a\u202eb", Type: "A", Rcode: "NOERROR", Network: "udp"}
	if err := s.Prepare(); err == nil {
		t.Error("a name that can be none is accepted")
	}
}
