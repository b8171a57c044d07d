"""Addresses as people write them, and TLS: a certificate that is not trusted ends it, at once."""

import datetime
import ipaddress
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from service.client import errors
from service.client.client import Client
from service.client.connections import Address
from tests.service.client.misbehaving import answer_bytes

x509 = pytest.importorskip("cryptography.x509", reason="no certificates to test with: install cryptography")


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("http://127.0.0.1:8350", Address("http", "127.0.0.1", 8350, "")),
        ("http://states.example", Address("http", "states.example", 80, "")),
        ("https://states.example/", Address("https", "states.example", 443, "")),
        ("https://states.example/strata/", Address("https", "states.example", 443, "/strata")),
        ("http://[::1]:8350", Address("http", "::1", 8350, "")),
    ],
)
def test_an_address_is_read_and_written(url: str, address: Address) -> None:
    assert Address.parse(url) == address
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:8350",
        "ftp://x",
        "http://",
        "http://x:port",
        "http://x:99999",
        "http://x?y=1",
        "http://x#y",
        "http://key@x",
        "http://x y",
        "http://x/\r\nHost: y",
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError):
        Client(url)


def test_a_path_above_the_service_is_kept(
    tls: tuple[str, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, heard = tls
    with Client(f"{url}/strata", retries=0) as client:
        client.datasets()
    assert heard[-1].startswith(b"GET /strata/v1/datasets HTTP/1.1\r\n")


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[bytes]]]:
    """Give an https URL whose certificate is trusted, and what is heard there."""
    certificate, key = certified(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    with https_server(certificate, key) as served:
        yield served


def test_requests_go_over_tls(tls: tuple[str, list[bytes]]) -> None:
    url, heard = tls
    with Client(url, "strata_id_secret", retries=0) as client:
        assert client.datasets() == client.datasets() == ()
        assert client.session.transport.connections.opened == 1
    assert b"Authorization: Bearer strata_id_secret" in heard[0]


def test_a_certificate_that_is_not_trusted_is_refused_at_once(
    tls: tuple[str, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, heard = tls
    monkeypatch.delenv("SSL_CERT_FILE")
    with (
        Client(url, "strata_id_secret") as client,
        pytest.raises(errors.UnreachableError, match="certificate"),
    ):
        client.datasets()
    assert heard == []


def certified(folder: Path) -> tuple[Path, Path]:
    """Write a certificate of 127.0.0.1 that signs itself, and its key."""
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tests")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "certificate.pem", folder / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return paths


@contextmanager
def https_server(certificate: Path, key: Path) -> Iterator[tuple[str, list[bytes]]]:
    """Answer every request with no datasets."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    heard: list[bytes] = []

    def serve(listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                plain, _ = listening.accept()
                with suppress(OSError), plain, context.wrap_socket(plain, server_side=True) as connection:
                    while data := connection.recv(65536):
                        heard.append(data)
                        connection.sendall(answer_bytes(200, b'{"datasets": []}'))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve, args=(listening,), daemon=True)
        thread.start()
        yield f"https://127.0.0.1:{listening.getsockname()[1]}", heard
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(10)
